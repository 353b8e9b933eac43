# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
# The same tests with the newest transformers.
LATEST := .venv-latest
# Clients of other servers, which the tests set on this one.
CLIENTS := .venv-clients
# Another server, which the benchmark measures.
RIVALS := .venv-bench
# One more, whose environment takes 4 GB: make .venv-mlserver/.ready bench BENCH=--all
MLSERVER := .venv-mlserver
REQUIREMENTS := requirements.txt requirements-dev.txt requirements-demo.txt
OPENVINO := requirements-openvino.txt requirements-optimum.txt

.DEFAULT_GOAL := help
.PHONY: bench browser help install demo serve stop test test-latest lint models archives wrk clean

help:
	@echo "make demo    prepare four small models, serve them, ask each one, stop"
	@echo "make serve   the same server on 127.0.0.1:8080, until make stop"
	@echo "make test    every test, end to end ones on a real TorchServe"
	@echo "make test-latest    those tests with the newest transformers, without OpenVINO"
	@echo "make lint    ruff and mypy"
	@echo "make bench   how fast it serves, beside other servers; an hour on a quiet machine"

install: $(READY)

$(READY): $(REQUIREMENTS) $(OPENVINO)
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt -r requirements-openvino.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-demo.txt -r requirements-optimum.txt
	touch $(READY)

# OpenVINO's files are no part of it; they are named because the README's test asks make whether
# the environment that runs it is younger than they are.
$(LATEST)/.ready: $(REQUIREMENTS) $(OPENVINO) requirements-latest.txt
	$(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt
	$(LATEST)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-latest.txt
	$(LATEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-demo.txt
	touch $@

$(CLIENTS)/.ready: requirements-clients.txt requirements-gateway.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-clients.txt
	touch $@

$(RIVALS)/.ready: requirements-bench.txt
	$(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-bench.txt
	touch $@

$(MLSERVER)/.ready: requirements-mlserver.txt
	$(PYTHON) -m venv $(MLSERVER)
	$(MLSERVER)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-mlserver.txt
	touch $@

models: $(READY)
	$(RUN) scripts/make_demo_models.py

archives: models
	$(RUN) scripts/create_archive.py

demo: $(READY)
	$(RUN) scripts/make_demo_models.py
	$(RUN) scripts/demo.py

serve: archives
	$(RUN) scripts/serve.py start

stop: $(READY)
	$(RUN) scripts/serve.py stop

# The pages are tested in a real browser; Debian's is installed where there is none.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; }

# The load generator of the benchmark.
wrk:
	@command -v wrk >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq wrk; }

# BENCH="--only kit,reference --rounds 1" measures less; benchmarks/bench.py --help tells what there is.
bench: $(READY) $(RIVALS)/.ready wrk
	$(RUN) benchmarks/bench.py $(BENCH)

test: models browser wrk $(CLIENTS)/.ready
	$(RUN) -m pytest

# The models that `make models` trained are served here too.
test-latest: $(LATEST)/.ready models browser wrk $(CLIENTS)/.ready
	$(LATEST)/bin/python -m pytest -m "not openvino"

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf build model_store/*.mar artifacts/models logs
