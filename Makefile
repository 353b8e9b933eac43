# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
# The same tests with the newest transformers.
LATEST := .venv-latest
REQUIREMENTS := requirements.txt requirements-dev.txt requirements-demo.txt
OPENVINO := requirements-openvino.txt requirements-optimum.txt

.DEFAULT_GOAL := help
.PHONY: browser help install demo serve stop test test-latest lint models archives clean

help:
	@echo "make demo    prepare four small models, serve them, ask each one, stop"
	@echo "make serve   the same server on 127.0.0.1:8080, until make stop"
	@echo "make test    every test, end to end ones on a real TorchServe"
	@echo "make test-latest    those tests with the newest transformers, without OpenVINO"
	@echo "make lint    ruff and mypy"

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

test: models browser
	$(RUN) -m pytest

# The models that `make models` trained are served here too.
test-latest: $(LATEST)/.ready models browser
	$(LATEST)/bin/python -m pytest -m "not openvino"

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf build model_store/*.mar artifacts/models logs
