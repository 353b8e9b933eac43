# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
# The newest transformers.
LATEST := .venv-latest
# Clients of other servers, which the tests run against this one.
CLIENTS := .venv-clients
# LangChain and LlamaIndex, whose classes the tests run against this server.
FRAMEWORKS := .venv-frameworks
# LitServe, which the benchmark measures.
BENCH_VENV := .venv-bench
# MLServer, whose environment takes 4 GB: make .venv-mlserver/.ready bench BENCH=--all
MLSERVER := .venv-mlserver
# infinity and sentence-transformers, which `make bench-embeddings` measures.
INFINITY := .venv-infinity
# vLLM, whose environment takes 4 GB; `make test-vllm` tests it and `make bench-generation` measures it.
VLLM := .venv-vllm
# Ray, which serves archives and scores files; `make test-ray` tests it.
RAY := .venv-ray
# KServe's SDK, which serves archives; `make test-kserve` tests it.
KSERVE := .venv-kserve
# The documentation site.
DOCS := .venv-docs
# Writes requirements/*.txt.
LOCK := .venv-lock
PIP := -m pip install --quiet --disable-pip-version-check
# In environments of tests, Python compiles only the modules that it imports.
TEST_PIP := $(PIP) --no-compile
# Three processes on two cores, as servers mostly wait; what needs the same servers stays in one (tests/conftest.py).
PARALLEL := --numprocesses 3 --dist loadgroup
TESTED := models browser wrk $(CLIENTS)/.ready $(FRAMEWORKS)/.ready $(DOCS)/.ready
# MODES="fill_mask summarization" names the modes of demo, serve, archives and models;
# scripts/kit/default_modes.py has those that they take without it.
SERVED = $(or $(MODES),$(shell $(RUN) -m scripts.kit.default_modes))

.DEFAULT_GOAL := help
.PHONY: archives bench bench-embeddings bench-generation bench-images browser clean demo docs help install lint lock models serve serve-kserve serve-ray soak stop stop-kserve \
  stop-ray test test-all test-kserve test-latest test-ray test-soak test-vllm train-demo-models wrk

help:
	@echo "make install      create .venv with the kit, its dependencies and the tools of the tests"
	@echo "make demo         make small models, serve them, send each a request, stop"
	@echo "make serve        start the same server on 127.0.0.1:8080"
	@echo "                  both take MODES=\"fill_mask summarization\", the tasks to serve"
	@echo "make stop         stop that server"
	@echo "make serve-ray    serve the same models with Ray Serve on 127.0.0.1:8080"
	@echo "make stop-ray     stop that server"
	@echo "make serve-kserve serve the same models behind KServe's SDK on 127.0.0.1:8080"
	@echo "make stop-kserve  stop that server"
	@echo "make test         run the tests, without the slow ones"
	@echo "make test-all     run every test"
	@echo "make test-latest  run the unit and contract tests with the newest transformers"
	@echo "make test-vllm    run the tests that need vLLM"
	@echo "make test-ray     run the tests that need Ray"
	@echo "make test-kserve  run the tests that need KServe's SDK"
	@echo "make test-soak    run the short soak as a test, on a machine that does nothing else"
	@echo "make lint         run ruff and mypy"
	@echo "make docs         build the documentation site in build/site"
	@echo "make bench        measure the speed beside other servers, in about an hour"
	@echo "make bench-embeddings  measure sentence embeddings beside infinity, in about 40 minutes"
	@echo "make bench-images      measure image classification beside LitServe, in about 20 minutes"
	@echo "make bench-generation  measure text generation beside other engines, in about two hours"
	@echo "make soak         serve under faults and load for 30 minutes; SOAK=90 takes 90 seconds"
	@echo "make train-demo-models  train the models in artifacts/demo_weights again, on a GPU in minutes"
	@echo "make lock         write requirements/*.txt from pyproject.toml; UPGRADE=1 takes newer versions"
	@echo "make clean        remove archives, demo models, logs and build/"

install: $(READY)

# `-e .`: the command lines import the kit from this folder.
$(READY): pyproject.toml requirements/dev.txt $(wildcard requirements/*-no-deps.txt)
	$(PYTHON) -m venv $(VENV)
	$(RUN) $(PIP) -r requirements/dev.txt
	$(RUN) $(PIP) --no-deps $(addprefix -r ,$(wildcard requirements/*-no-deps.txt)) -e .
	touch $@

$(LATEST)/.ready: pyproject.toml requirements/latest.txt requirements/demo-no-deps.txt
	$(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python $(TEST_PIP) -r requirements/latest.txt
	$(LATEST)/bin/python $(TEST_PIP) --no-deps -r requirements/demo-no-deps.txt -e .
	touch $@

# The gateway runs beside the clients.
$(CLIENTS)/.ready: .venv-%/.ready: pyproject.toml requirements/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(TEST_PIP) -r requirements/$*.txt
	.venv-$*/bin/python $(TEST_PIP) --no-deps -e .
	touch $@

# The documentation tool, frameworks and other servers, which import nothing of the kit.
$(DOCS)/.ready $(FRAMEWORKS)/.ready $(BENCH_VENV)/.ready $(MLSERVER)/.ready $(INFINITY)/.ready: .venv-%/.ready: requirements/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(TEST_PIP) -r requirements/$*.txt
	touch $@

# vLLM's CPU build imports these if they are there. It needs none of them for text, and their wheels
# are built for CUDA and break imports beside a CPU torch.
$(VLLM)/.ready: requirements/vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python $(TEST_PIP) -r requirements/vllm.txt
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

# `-e .`: their processes import `hosts` from this folder. Archives of `save_mode: auto` are OpenVINO's.
$(RAY)/.ready $(KSERVE)/.ready: .venv-%/.ready: pyproject.toml requirements/%.txt requirements/openvino-no-deps.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP) -r requirements/$*.txt
	.venv-$*/bin/python $(PIP) --no-deps -r requirements/openvino-no-deps.txt -e .
	touch $@

$(LOCK)/.ready: Makefile
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python $(PIP) pip-tools==7.6.2
	touch $@

lock: $(LOCK)/.ready
	$(LOCK)/bin/python scripts/lock_requirements.py $(if $(UPGRADE),--upgrade)

models: $(READY)
	$(RUN) -m scripts.make_demo_models $(MODES)

archives: models
	$(RUN) -m scripts.create_archive $(MODES:%=model_configs/%.yaml)

demo: models
	$(RUN) -m scripts.demo $(MODES:%=--mode %)

serve: archives
	$(RUN) -m scripts.serve start $(SERVED:%=--models %)

stop: $(READY)
	$(RUN) -m scripts.serve stop

serve-ray: archives $(RAY)/.ready
	$(RAY)/bin/python -m scripts.serve_ray start $(SERVED:%=--models %)

stop-ray: $(RAY)/.ready
	$(RAY)/bin/python -m scripts.serve_ray stop

serve-kserve: archives $(KSERVE)/.ready
	$(KSERVE)/bin/python -m scripts.serve_kserve start $(SERVED:%=--models %)

stop-kserve: $(KSERVE)/.ready
	$(KSERVE)/bin/python -m scripts.serve_kserve stop

# The HTML pages are tested in a real browser; Debian's is installed where there is none.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; }

# The load generator of the benchmark.
wrk:
	@command -v wrk >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq wrk; }

# BENCH="--only kit,reference --rounds 1" measures less; python -m benchmarks.bench --help lists the options.
bench: $(READY) $(BENCH_VENV)/.ready wrk
	$(RUN) -m benchmarks.bench $(BENCH)

# BENCH="--only kit,infinity --model minilm --rounds 1" measures less, BENCH=--smoke tries it with a tiny model.
bench-embeddings: $(READY) $(INFINITY)/.ready wrk
	$(RUN) -m benchmarks.embeddings $(BENCH)

# BENCH="--only kit,litserve --rounds 1" measures less, BENCH=--smoke tries it with a tiny model.
bench-images: $(READY) $(BENCH_VENV)/.ready wrk
	$(RUN) -m benchmarks.images $(BENCH)

# BENCH="--only kit,vllm --model qwen2 --rounds 1" measures less, BENCH=--smoke tries it with tiny models.
bench-generation: $(READY) $(VLLM)/.ready
	$(RUN) -m benchmarks.generation $(BENCH)

# SOAK=90 takes 90 seconds; the whole run writes docs/reliability.md.
soak: $(READY)
	$(RUN) -m benchmarks.soak $(if $(SOAK),--seconds $(SOAK),--page)

test: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "not slow and not vllm and not ray and not kserve and not soak"

# Faults and overload are tried last, with nothing beside them.
test-all: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "not vllm and not ray and not kserve and not soak"
	$(RUN) -m pytest -m soak tests/benchmarks

# The models that `make models` trained are served here too.
test-latest: $(LATEST)/.ready models $(CLIENTS)/.ready $(FRAMEWORKS)/.ready
	$(LATEST)/bin/python -m pytest $(PARALLEL) -m "not openvino and not slow and not vllm and not ray and not kserve and not soak" tests/handlers tests/scripts

test-vllm: $(READY) $(VLLM)/.ready
	$(RUN) -m pytest -m vllm tests/handlers/formats tests/e2e

test-soak: $(READY) models wrk
	$(RUN) -m pytest -m soak tests/benchmarks

# The programs of Ray run in its environment, the tests in that of the kit.
test-ray: $(READY) $(RAY)/.ready
	$(RUN) -m pytest -m ray tests/hosts

# The gateway and KServe's clients are in the environment of the clients.
test-kserve: $(READY) $(KSERVE)/.ready $(CLIENTS)/.ready
	$(RUN) -m pytest -m kserve tests/hosts

docs: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --site-dir build/site

# What the default demo models add to MiniLM, and a tiny model; without a GPU it takes hours.
train-demo-models: $(READY)
	$(RUN) -m scripts.kit.demo_models.long_training

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf build model_store/*.mar artifacts/models logs
