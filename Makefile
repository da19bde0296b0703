# Everything from a fresh clone: each target makes the environment and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE =# where it is set, every process of the tests would compile PyTorch's Python anew, for seconds

.PHONY: demo glass models test slow quick check fix fuzz damage soak mutants faults distributed sanitize claims bench browser screenshots docs site tutorials wasm clean help

help:            ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: .venv/installed  ## train a small translator in minutes and look at it
	$(BIN)/regard demo

glass: .venv/installed ## train the model anew that comes with the package (some minutes)
	$(BIN)/python -m regard.demo.train_glass_model

models: .venv/installed ## train the example models of `regard look` anew (NAMES=chinese for some; some minutes each)
	OMP_NUM_THREADS=1 $(BIN)/python -m regard.demo.train_example_models $(NAMES)

test: check browser ## style, types and the tests, a learning one of every task among them (about ten minutes)
	$(BIN)/pytest -n 2 -m "not slow"

slow: browser    ## the tests that take long, and every property with other and ten times as many examples (an hour)
	$(BIN)/pytest -m "slow or hypothesis" --hypothesis-profile random

browser: .venv/dev ## Chromium and gettext, which some tests need, where apt is at hand
	@{ command -v chromium || command -v google-chrome; } >/dev/null && command -v msgfmt >/dev/null \
	|| { command -v apt-get >/dev/null && SUDO=$$(test "$$(id -u)" = 0 || echo sudo -n) \
	     && $$SUDO apt-get -qq update && $$SUDO apt-get -qq install --yes --no-install-recommends chromium gettext >/dev/null; } \
	|| echo "No Chromium or no gettext here: the tests that need them will be skipped."

screenshots: browser ## the pictures in docs/look.md, of every view in light and dark
	$(BIN)/python docs/screenshots.py

docs: .venv/docs ## the documentation as a site in build/site; it asks no other host for anything
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html, or, to search in it: $(BIN)/python -m http.server --directory build/site"

site: .venv/docs ## the whole site in build/site: documentation, lessons and live models, for any web host
	REGARD_LIVE=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/regard publish -o build/site/live --overwrite
	@echo "Copy build/site to any web host. To try it: $(BIN)/python -m http.server --directory build/site"

tutorials: .venv/dev ## types README, the how-to pages and the tutorials as a reader would (PAGES=gpt for some; some minutes)
	$(BIN)/python -m tests.documentation $(PAGES)

quick: .venv/dev ## the tests of `make test` without style and types
	$(BIN)/pytest -n 2 -m "not slow"

check: .venv/dev ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: .venv/dev   ## repair style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wasm: .venv/dev  ## the engine for pages, in WebAssembly, from the C++ sources: src/regard/browser/engine.wasm
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[wasm]'
	$(BIN)/python -m regard.browser.compile_engine

fuzz: .venv/dev  ## damaged documents and model files, a million (INPUTS=10000), with COVERAGE=settings, tokenizers, importers or documents, NATIVE=load or search, SECONDS=3600
ifdef NATIVE
	$(BIN)/python -m tests.fuzz.native $(NATIVE) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(INPUTS),--inputs $(INPUTS))
else ifdef COVERAGE
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz.coverage $(COVERAGE) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(INPUTS),--inputs $(INPUTS))
else
	$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))
endif

damage: .venv/dev  ## damaged model folders, 10,000 of them: each is refused or answers like the undamaged one (INPUTS=100 for fewer)
	$(BIN)/python -m tests.damaged_folders $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))

soak: .venv/dev  ## a server with kills, new and damaged models and hostile clients beside honest ones (HOURS=1)
	$(BIN)/python -m tests.serving.soak $(if $(HOURS),--hours $(HOURS)) $(if $(SEED),--seed $(SEED))

mutants: .venv/dev ## small faults put into the source one at a time: which does no test notice? (ONLY=folder, SAMPLE=40, SEED=1; hours)
	$(BIN)/python -m tests.mutants $(if $(ONLY),--only $(ONLY)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

faults: .venv/dev ## training killed, cut off and starved in all ways we know, and docs/faults.md from what came of it (an hour)
	$(BIN)/python -m tests.faults $(if $(TIMES),--times $(TIMES))

distributed: .venv/dev ## one, two and four processes over 200 updates, and how two threads compare with two processes
	$(BIN)/python benchmarks/scaling.py --curves 200

SANITIZER ?= address,undefined
WATCHED = -fsanitize=$(SANITIZER) -fno-sanitize-recover=all -fno-wrapv -fno-omit-frame-pointer -g
RUNTIME = $(if $(findstring thread,$(SANITIZER)),libtsan,libasan)
# other libraries' threads are not watched, which is taken for a fault of theirs: tests that use none
WATCHED_TESTS = $(if $(findstring thread,$(SANITIZER)),$(patsubst %,tests/decoding/native/test_%.py,threads parity hostile),tests/decoding/native tests/model/test_fused.py)

sanitize: .venv/dev ## the tests of what is written in C++ with memory and arithmetic watched, or, with SANITIZER=thread, its threads
	rm -rf build/sanitize
	CFLAGS="$(WATCHED)" CXXFLAGS="$(WATCHED)" LDFLAGS="$(WATCHED)" \
	$(BIN)/python setup.py --quiet build --build-base build/sanitize --build-lib build/sanitize/lib
	grep -qE "__(asan|tsan|ubsan)" build/sanitize/lib/regard/decoding/native/core*.so
	LD_PRELOAD="$(foreach name,$(RUNTIME) libstdc++,$(shell $(CXX) -print-file-name=$(name).so))" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1 PYTHONPATH=build/sanitize/lib \
	$(BIN)/pytest -m "not slow" $(WATCHED_TESTS)

claims: .venv/dev ## what is said of the Transformer, measured, and docs/claims.md from it (some minutes of one core)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/claims.py $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

bench: .venv/dev ## speed and memory beside the peers, and docs/benchmarks.md from it (DATA=folder with Multi30k; some hours)
	$(BIN)/python benchmarks/training.py --variants shipped,malloc $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/decoding.py --train $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/serving.py .bench/decoding/small .bench/decoding/base $(if $(DATA),--texts $(DATA)/test_2016_flickr.lc.norm.tok.en)
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/benchmarks_page.py

clean:           ## remove what the other targets made
	rm -rf .venv .bench build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

.venv/installed: pyproject.toml constraints.txt setup.py $(wildcard $(foreach place,model/kernels decoding/native,src/regard/$(place)/*.h src/regard/$(place)/*.cpp))
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch setuptools
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable .
	touch $@

.venv/dev: .venv/installed
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[dev,docs]'
	touch $@

.venv/docs: .venv/installed
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	touch $@
