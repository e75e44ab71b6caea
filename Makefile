# Each target makes the environment that it needs, and makes it again only when pyproject.toml or constraints.txt changed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := .make/venv.stamp
TYPED := .make/types
# A GPU needs a torch with CUDA, which is several gigabytes and not the torch of the other targets: its environment is apart.
GPU_VENV := .venv-gpu
GPU_BIN := $(GPU_VENV)/bin
# Or an interpreter that is there already, with torch and this package: make test-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(GPU_BIN)/python
GPU_STAMP := .make/venv-gpu.stamp
# sglang-jax pins its jax, which nothing else here needs. Its code is never fetched: KVPROOF_SGLANG_JAX_REPO names a repository.
JAX_VENV := .venv-sglang-jax
JAX_STAMP := .make/venv-sglang-jax.stamp
HAS_GPU := nvidia-smi --list-gpus 2>/dev/null | grep -q GPU
# tools/ is not installed: its modules are found by this path.
TOOLS := PYTHONPATH=tools:benchmarks $(BIN)/python
TOOLS_WITH_SGLANG := PYTHONPATH=tools:benchmarks:.venv-sglang/site/0.5.11 .venv-sglang/bin/python
SOURCES := package spec model impl kernels conformance

.PHONY: adopt history fix demo-server finding issue help demo certify test test-code test-docs test-full test-sglang test-sglang-full test-sglang-gpu test-sglang-jax test-gpu bench-gpu gpu-python soak soak-fixed test-faults referee mutants mutants-spec mutants-code code-releases bench-prove bench-impl bench-replay bench-traces bench-watch bench-capture bench-fuzz bench-start kill-matrix test-ray test-browser test-docs bench-report fuzz-traces fuzz-files test-versions wheel-twice audit sbom lint types docs layout clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## prove, break, record and replay, on one screen
	@KVPROOF=$(BIN)/kvproof bash examples/demo.sh

test: $(STAMP) ## tests that take seconds and need neither a GPU nor SGLang
	@echo "== test: all but slow, code, ray, browser, sglang and sglang-jax"
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not code and not ray and not browser and not sglang and not sglang_full and not sglang_jax"

certify: $(STAMP) ## the proof of the rules by a second solver too; their states, and that turns end, by SPIN
	@echo "== certify"
	$(BIN)/kvproof prove --certify --quiet
	if ! { command -v spin && command -v gcc; } >/dev/null; then
		apt-get update -q && apt-get install -q -y --no-install-recommends spin gcc libc6-dev || { echo "skipped: no SPIN, and apt-get cannot install it"; exit 0; }
	fi
	$(BIN)/python -m pytest -m slow tests/tools/spin

test-code: $(STAMP) ## tests of the proof of a server's own functions, in miniatures: two minutes
	@echo "== test-code"
	$(BIN)/python -m pytest -n auto --dist worksteal -m "code and not slow and not sglang and not sglang_full"

test-full: $(STAMP) ## all tests that need no SGLang, also those that take minutes
	@echo "== test-full: all but ray, browser, sglang and sglang-jax"
	$(BIN)/python -m pytest -n auto -m "not ray and not browser and not sglang and not sglang_full and not sglang_jax"

test-sglang: $(STAMP) ## tests against real SGLang releases, in environments of their own
	@echo "== test-sglang: environments, then tests"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m sglang

test-sglang-full: $(STAMP) ## the same, and more real servers: minutes
	@echo "== test-sglang-full: environments, then tests"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py --all
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "sglang or sglang_full"

SGLANG_RELEASE ?= 0.5.11
# Or an interpreter that is there already, with that SGLang, a CUDA torch and this package: SGLANG_PYTHON=python3
SGLANG_PYTHON ?= .venv-sglang/bin/python

test-sglang-gpu: ## a real SGLang scheduler with real forwards on a CUDA device, recorded and judged; without one on the CPU
	@echo "== test-sglang-gpu: SGLang $(SGLANG_RELEASE)"
	if [ "$(SGLANG_PYTHON)" = .venv-sglang/bin/python ]; then $(PYTHON) tests/conformance/adapters/sglang/make_env.py; fi
	PYTHONPATH=.venv-sglang/site/$(SGLANG_RELEASE) $(SGLANG_PYTHON) -W ignore tests/conformance/adapters/sglang/record_on_device.py out/on-device

# Of demo-server and finding.
SHOWN_ON = $(or $(RELEASE),0.5.23)

demo-server: $(STAMP) ## a real SGLang server on a CPU, recorded while clients use it, then judged: two minutes (RELEASE=0.5.11)
	@$(PYTHON) tests/conformance/adapters/sglang/make_env.py $(SHOWN_ON)
	PYTHONPATH=tests/helpers:tests/conformance/adapters/sglang $(BIN)/python -W ignore tests/conformance/adapters/sglang/demo_server.py --release $(SHOWN_ON)

finding: ## show a bug of a real release on a CPU, in a minute (NAME=given_up RELEASE=0.5.23; what SGLang logs: out/finding.log)
	@if [ ! -f docs/findings/$(NAME).md ]; then
		echo "error: NAME is one of: $$(cd docs/findings; ls *.md | sed 's/\.md$$//' | grep -v README | paste -s -d ' ')" >&2; exit 2
	fi
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py $(SHOWN_ON) >&2
	mkdir -p out
	PYTHONPATH=.venv-sglang/site/$(SHOWN_ON) .venv-sglang/bin/python docs/findings/$(NAME).py 2>out/finding.log || [ $$? = 1 ] || { cat out/finding.log >&2; exit 2; }

fix: $(STAMP) ## try the possible fix of a finding on a copy of SGLang 0.5.23: its script, and the proof of the code (NAME=own_row)
	@$(PYTHON) tests/conformance/adapters/sglang/make_env.py 0.5.23 >&2
	PYTHONPATH=tests/conformance/adapters/sglang:tools $(BIN)/python -W ignore tests/conformance/adapters/sglang/fixed_sglang.py $(NAME)

issue: ## a finding as the text of an issue for SGLang, by its bug template: out/issue.md (NAME=given_up RELEASE=0.5.23)
	@mkdir -p out
	$(MAKE) --no-print-directory finding NAME=$(NAME) RELEASE=$(SHOWN_ON) > out/finding.txt
	$(PYTHON) tools/issue_text.py $(NAME) --release $(SHOWN_ON) --said out/finding.txt > out/issue.md
	echo "out/issue.md: search upstream for it, and read it, before you send it"

history: $(STAMP) ## show a bug of SGLang's history on the release that has it, and that it is gone on the next (BUG=22862, BUG=all; HISTORY=--write writes docs/history.md)
	@PYTHONPATH=tests/helpers:tests/conformance/adapters/sglang $(BIN)/python -W ignore tests/conformance/adapters/sglang/bug_history.py "$(BUG)" $(HISTORY)

adopt: $(STAMP) ## take in a release of SGLang that is not known: install, record, judge, fuzz, and write its row (RELEASE="0.5.21 0.5.22")
	@echo "== adopt: $(RELEASE)"
	PYTHONPATH=tests/helpers:tests/conformance/adapters/sglang:tools:benchmarks $(BIN)/python -W ignore tests/conformance/adapters/sglang/adopt_release.py $(RELEASE) $(ADOPT)

CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome

test-browser: $(STAMP) ## reports in a real browser: Debian's chromium, without a display (installs kvproof[browser])
	@echo "== test-browser"
	if ! { $(CHROMIUM); } >/dev/null; then
		apt-get update -q && apt-get install -q -y --no-install-recommends chromium || { echo "skipped: no chromium, and apt-get cannot install it"; exit 0; }
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[browser]'
	$(BIN)/python -m pytest -m browser tests/browser

test-ray: $(STAMP) ## replay on a Ray cluster of this machine, a worker killed in the middle (installs kvproof[ray])
	@echo "== test-ray"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[ray]'
	$(BIN)/python -m pytest -m ray

test-sglang-jax: ## tests against sglang-jax, from the repository that KVPROOF_SGLANG_JAX_REPO names
	@if [ -z "$${KVPROOF_SGLANG_JAX_REPO:-}" ]; then echo "skipped: KVPROOF_SGLANG_JAX_REPO names no repository"; exit 0; fi
	$(MAKE) --no-print-directory $(STAMP) $(JAX_STAMP)
	echo "== test-sglang-jax"
	$(BIN)/python -m pytest -m sglang_jax tests/conformance/adapters/sglang_jax

test-gpu: ## kernels on a CUDA device: properties against the references, and tests that only a device can run
	@if ! $(HAS_GPU); then echo "skipped: no CUDA device"; exit 0; fi
	$(MAKE) --no-print-directory gpu-python
	echo "== test-gpu"
	$(GPU_PYTHON) -m pytest -m "not slow" tests/gpu tests/kernels tests/impl/test_runner.py

gpu-python: $(if $(filter $(GPU_BIN)/python,$(GPU_PYTHON)),$(GPU_STAMP))

bench-gpu: ## what the kernels cost on a CUDA device, beside the floor that its memory sets
	@if ! $(HAS_GPU); then echo "skipped: no CUDA device"; exit 0; fi
	$(MAKE) --no-print-directory gpu-python
	echo "== bench-gpu"
	$(GPU_PYTHON) benchmarks/gpu.py

test-docs: $(STAMP) ## what the documentation says, typed and run: tutorials, examples, generated pages, the site without a broken link
	@echo "== test-docs"
	$(BIN)/python -m pytest -n auto tests/docs tests/test_examples.py tests/tools/test_documentation.py

soak: $(STAMP) ## a million checked steps without a false alarm, whether the interpreters agree (SOAK="--seconds 60"); then SGLang
	@echo "== soak: the reference"
	$(TOOLS) -m soak.reference_soak $(SOAK)
	@echo "== soak: scenarios of SGLang 0.5.11 (SOAK_SGLANG=\"--seconds 5\": each of them)"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py
	$(TOOLS_WITH_SGLANG) -W ignore -m soak.sglang_soak $(SOAK_SGLANG)

soak-fixed: $(STAMP) ## the scenarios that show findings, on SGLang 0.5.23 with the fixes of docs/findings/fixes, without a false alarm
	@echo "== soak-fixed"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py 0.5.23
	copy=$$(PYTHONPATH=tests/conformance/adapters/sglang:tools $(BIN)/python -W ignore tests/conformance/adapters/sglang/fixed_sglang.py all) && \
	PYTHONPATH=tools:benchmarks:$$copy .venv-sglang/bin/python -W ignore -m soak.sglang_soak $(SOAK_SGLANG)

test-faults: $(STAMP) ## harm to a recorded server: kills, full disks, stalls; does it notice, is what is missing counted (FAULTS="--kills 10")
	@echo "== test-faults"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py
	$(TOOLS) -m recorder_faults $(FAULTS)

mutants-spec: $(STAMP) ## mutation test over the specification: half an hour; goes on where it was stopped
	@echo "== mutants-spec: every small mistake in every rule, and who notices it"
	$(TOOLS) -m rule_mutation.mutate --page docs/trust.md

referee: $(STAMP) ## wrong rules and altered traces that must be found, and harmless ones that must pass (docs/referee.md): minutes; goes on where it was stopped
	@echo "== referee"
	$(TOOLS) -m referee --page docs/referee.md

mutants: $(STAMP) ## mutation test over the reference implementation and SGLang's sessions; ten minutes; goes on where it was stopped (MUTANTS="--jobs 1", MUTANTS="--all": eight times as many)
	@echo "== mutants: small mistakes in what is under test, and who notices them"
	$(TOOLS) -m mutation $(MUTANTS)
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py
	$(TOOLS_WITH_SGLANG) -W ignore -m mutation --subject sglang $(MUTANTS_SGLANG)

# A folder that holds the package `sglang`: what make_env.py installs, or an unpacked wheel.
CODE ?= .venv-sglang/site/0.5.11

mutants-code: $(STAMP) ## mutation test over what prove --code says of SGLang's functions: minutes; goes on where it was stopped (CODE=FOLDER)
	@echo "== mutants-code: $(CODE)"
	if [ "$(CODE)" = .venv-sglang/site/0.5.11 ]; then $(PYTHON) tests/conformance/adapters/sglang/make_env.py; fi
	$(TOOLS) -m code_mutation $(CODE)

code-releases: $(STAMP) ## what prove --code says of each release of SGLang (docs/code_releases.md): minutes
	@echo "== code-releases"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py --all
	$(TOOLS) -m code_releases .venv-sglang/site/* --page docs/code_releases.md

bench-prove: $(STAMP) ## time of proofs and counterexamples, beside SPIN where it is installed (apt-get install spin)
	@echo "== bench-prove"
	$(TOOLS) benchmarks/prove.py

bench-impl: $(STAMP) ## speed of the reference scheduler, beside what its runner costs: about two minutes
	@echo "== bench-impl"
	$(TOOLS) benchmarks/impl.py

bench-replay: $(STAMP) ## how fast a trace is judged: compiled and interpreted, parsing apart
	@echo "== bench-replay"
	$(TOOLS) benchmarks/replay.py

bench-traces: $(STAMP) ## the standing benchmark traces: a whole production workload at pages of 1, 16 and 64 (WORKLOAD=mooncake_conversation.jsonl)
	@echo "== bench-traces"
	$(TOOLS) benchmarks/traces.py $(WORKLOAD)

bench-watch: $(STAMP) ## whether a trace is followed as fast as it is written: about three minutes
	@echo "== bench-watch"
	$(TOOLS) benchmarks/watch.py

bench-capture: $(STAMP) ## what recording costs SGLang's scheduler, step by step: about two minutes
	@echo "== bench-capture"
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py
	$(TOOLS) benchmarks/capture.py

bench-report: $(STAMP) ## how long a report takes to write, and to open in a browser (after make test-browser)
	@echo "== bench-report"
	$(TOOLS) benchmarks/report.py

bench-fuzz: $(STAMP) ## how fast the fuzzer is, beside a plain Hypothesis state machine: about five minutes
	@echo "== bench-fuzz"
	$(TOOLS) benchmarks/fuzz.py $(BENCH_FUZZ)

bench-start: $(STAMP) ## how long the command line takes to answer
	@echo "== bench-start"
	$(TOOLS) benchmarks/start.py

kill-matrix: $(STAMP) ## every fault switched on, and fuzzed until it is named; then none, for ten minutes (KILL="--seeds 3 --clean 60")
	@echo "== kill-matrix"
	$(TOOLS) -m fuzzing.kill_matrix $(KILL)
	$(PYTHON) tests/conformance/adapters/sglang/make_env.py --all
	$(TOOLS) -m fuzzing.release_matrix $(KILL_RELEASES)

FUZZ_SECONDS ?= 30
FUZZ_SEED ?= 0

fuzz-traces: $(STAMP) ## hostile trace files, found by coverage: FUZZ_SECONDS=600; what it finds stays in out/fuzz
	@echo "== fuzz-traces: $(FUZZ_SECONDS) s"
	if ! $(BIN)/python -c 'import atheris' 2>/dev/null; then echo "skipped: no atheris for this Python"; exit 0; fi
	mkdir -p out/fuzz/corpus
	$(BIN)/python tests/untrusted_input/fuzz_by_coverage.py traces out/fuzz/corpus tests/untrusted_input/corpus -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=out/fuzz/ -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1

test-versions: $(STAMP) ## Python 3.10 to 3.13 and the last three minor versions of z3-solver, each in an environment of its own (VERSIONS="--only 3.13 --prove")
	@echo "== test-versions"
	$(TOOLS) tools/supply/supported_versions.py $(VERSIONS)

wheel-twice: $(STAMP) ## the wheel, built twice from copies of another age and folder: the same bytes?
	@echo "== wheel-twice"
	$(TOOLS) tools/supply/reproducible_wheel.py --out dist

SUPPLY := .venv-supply

NO_VERDICT ?= 3

audit: ## known vulnerabilities of what CI installs (pip-audit); exits with 3 (NO_VERDICT=0: says so) where the service does not tell of all
	@echo "== audit"
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(SUPPLY)/bin/python tools/supply/vulnerability_audit.py constraints.txt || { status=$$?; [ $$status -eq 3 ] && exit $(NO_VERDICT) || exit $$status; }

sbom: ## what an installed kvproof brings along, as CycloneDX: dist/kvproof.cdx.json
	@echo "== sbom"
	$(PYTHON) -m venv $(SUPPLY)/bill
	$(PYTHON) -m venv $(SUPPLY)/installed
	$(SUPPLY)/bill/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	$(SUPPLY)/installed/bin/python -m pip install --quiet --disable-pip-version-check .
	mkdir -p dist
	$(SUPPLY)/bill/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/kvproof.cdx.json $(SUPPLY)/installed/bin/python
	echo "dist/kvproof.cdx.json"

fuzz-files: $(STAMP) ## hostile files of every other kind (states, workloads, kept answers, names): FUZZ_SECONDS=600, FUZZ_SEED=1
	@echo "== fuzz-files: $(FUZZ_SECONDS) s"
	if ! $(BIN)/python -c 'import atheris' 2>/dev/null; then echo "skipped: no atheris for this Python"; exit 0; fi
	mkdir -p out/fuzz-files/corpus
	$(BIN)/python tests/untrusted_input/fuzz_by_coverage.py files out/fuzz-files/corpus -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=out/fuzz-files/ -rss_limit_mb=4096 -max_len=65536 -timeout=60 -print_final_stats=1

lint: $(STAMP) installed ## ruff: rules and layout; import-linter: the direction of imports
	@echo "== lint"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=$(TYPED) $(BIN)/lint-imports --no-cache

# mypy and import-linter cannot follow the editable install: folder `spec` is package `kvproof.spec` only once it is installed plainly.
.PHONY: installed
installed: $(STAMP)
	@rm -rf build $(TYPED)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --target $(TYPED) .
	rm -rf build

types: $(STAMP) installed ## mypy, on the package as it installs
	@echo "== types"
	MYPYPATH=$(TYPED):tools:benchmarks $(BIN)/mypy -p kvproof -p mutation -p policies -p rule_mutation -p code_mutation -p referee -p soak -p fuzzing -m interpreter_agreement -m model_agreement -m documentation -m seed_search -m corner_runs -m code_history -m code_releases | sed 's#^$(TYPED)/kvproof/##'

# Not --quiet: mkdocs would then not count its warnings, and a broken link would pass.
docs: $(STAMP) ## write the generated pages anew (kill matrix, rules, faults, trace format), and all pages as a site into out/site
	@echo "== docs"
	$(TOOLS) -m documentation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	echo "see it: $(BIN)/python -m http.server -d out/site"

layout: $(STAMP) ## draw the layout of the package from its imports (docs/pictures/layout.svg), and print how large it is
	@$(TOOLS) tools/layout_drawing.py
	$(TOOLS) tools/layout_drawing.py --measures

clean: ## remove what the other targets made
	rm -rf .venv .venv-gpu .venv-versions .venv-supply .venv-sglang .venv-sglang-jax .make build dist out *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@echo "== environment: $(VENV), by $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation torch==2.13.0 -e '.[dev]'
	mkdir -p $(@D)
	touch $@

$(JAX_STAMP): pyproject.toml constraints.txt tests/conformance/adapters/sglang_jax/requirements.txt
	@echo "== environment: $(JAX_VENV), by $$($(PYTHON) --version), with jax on the CPU"
	$(PYTHON) -m venv $(JAX_VENV)
	$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(JAX_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation \
		-r tests/conformance/adapters/sglang_jax/requirements.txt -e .
	mkdir -p $(@D)
	touch $@

$(GPU_STAMP): pyproject.toml constraints.txt
	@echo "== environment: $(GPU_VENV), by $$($(PYTHON) --version), with a CUDA torch"
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(GPU_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation torch -e '.[dev]'
	mkdir -p $(@D)
	touch $@
