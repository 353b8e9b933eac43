# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
REQUIREMENTS := requirements.txt requirements-dev.txt requirements-demo.txt

.DEFAULT_GOAL := help
.PHONY: browser help install demo serve stop test lint models archives clean

help:
	@echo "make demo    prepare four small models, serve them, ask each one, stop"
	@echo "make serve   the same server on 127.0.0.1:8080, until make stop"
	@echo "make test    every test, end to end ones on a real TorchServe"
	@echo "make lint    ruff and mypy"

install: $(READY)

$(READY): $(REQUIREMENTS)
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-demo.txt
	touch $(READY)

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

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf build model_store/*.mar artifacts/models logs
