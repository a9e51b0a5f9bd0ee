# hlojit: `make demo` and `make test` do all their set-up themselves; `make` prints this list.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.hlojit-installed
RUN = $(BIN)/python
# Suites whose programs the back end cuda compiles too; what is not here takes a CPU's code apart.
SIMULATED = tests/simulator tests/test_reference_backend.py tests/test_fuzz_donation.py tests/tracing tests/ops tests/math \
  $(addprefix tests/lowering/test_,loops.py reductions.py rows.py windows.py) \
  $(addprefix tests/cpu/test_,sort.py scatter.py dynamic_update_slice.py random_bits.py empty_extents.py empty_sums.py) \
  $(addprefix tests/extensions/test_,api_1_0.py calls_in_regions.py checked_functions.py custom_calls.py formats.py format_matrix.py helpers.py \
  integer_division.py op_fields.py returned_numbers.py)
# What the back end's own tests do on a GPU: pytest --gpu skips what is for the simulator alone.
ON_GPU = $(addprefix tests/cuda/test_,device.py programs.py functions.py formats.py kernel_calls.py true_gpu.py) tests/gpu/test_device_loops.py

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz draws array-api conformance conformance-jax soak check fast kit bench bench-functions bench-gradients bench-sorting bench-linear-algebra bench-full replay assemble exhaustive docs clean test-simulator test-gpu bench-gpu roofline

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml tools/link_tree.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	$(RUN) tools/link_tree.py
	touch $@

demo: $(STAMP)  ## compile and run a decorated function and a StableHLO program, compared with NumPy
	$(RUN) examples/demo.py

test: $(STAMP)  ## run the whole test suite, then a sample of it with the programs on the simulated GPU
	$(RUN) -m pytest -q -n $(or $(WORKERS),2) --dist worksteal --ignore=tests/simulator
	$(MAKE) test-simulator

fast: $(STAMP)  ## run the tests that take less than a minute together
	$(RUN) -m pytest -q -m "not slow" -x

kit: $(STAMP)  ## the conformance kit over hlojit's own back ends, formats and plugins_example/ (reports in build/kit/; ARGS="--budget full")
	$(RUN) tools/run_kit.py $(ARGS)

soak: $(STAMP)  ## what takes minutes: 200 cold processes with threads, 10,000 programs compiled and dropped
	$(RUN) -m pytest -q --soak -m soak
	$(RUN) tools/memory_growth.py

fuzz: $(STAMP)  ## every test of random programs, with programs that are new each time (two minutes; again and again finds more)
	$(RUN) -m pytest -q --hypothesis-profile=random -m hypothesis $(ARGS)

draws: $(STAMP)  ## drawn calls of every NumPy function beside NumPy, new ones each time (20 of each; EXAMPLES=100)
	DRAWS=$(or $(EXAMPLES),20) $(RUN) -m pytest -q -n $(or $(WORKERS),2) --hypothesis-profile=random tests/test_numpy_draws.py $(ARGS)

conformance: $(STAMP)  ## StableHLO's own suites: make conformance STABLEHLO=<checkout> (ARGS="--suite math"; docs/conformance.md)
	$(RUN) -m tools.conformance --stablehlo $(or $(STABLEHLO),$(error say where a checkout of openxla/stablehlo is: STABLEHLO=<folder>)) $(ARGS)

array-api: $(STAMP)  ## the array API's own suite over hlojit.numpy: make array-api TESTS=<checkout of data-apis/array-api-tests>
	cd $(or $(TESTS),$(error say where a checkout of data-apis/array-api-tests is: TESTS=<folder>)) && \
	ARRAY_API_TESTS_MODULE=hlojit.numpy $(abspath $(RUN)) -m pytest -q array_api_tests \
	  --max-examples=$(or $(EXAMPLES),20) --skips-file=$(CURDIR)/tools/array_api_skips.txt $(ARGS)

conformance-jax: $(STAMP)  ## every harness of the jax wheel beside JAX's CPU compiler (EVERY=4 for one of four)
	$(RUN) -m tools.conformance --jax --every $(or $(EVERY),1) $(ARGS)

test-simulator: $(STAMP)  ## a sample of the suites with every program on the back end cuda, run by the simulator (four minutes)
	HLOJIT_CUDA=simulator $(RUN) -m pytest -q -n 2 --backend cuda --every $(or $(EVERY),8) $(SIMULATED)

test-gpu: $(STAMP)  ## the same suites, the real programs and the back end's tests on the machine's GPU (docs/cuda.md)
	@unset HLOJIT_CUDA; failed=0; set -x; \
	$(RUN) -m pytest -q -rs -n $(or $(WORKERS),8) --gpu $(ON_GPU) || failed=1; \
	$(RUN) -m pytest -q -n $(or $(WORKERS),8) --gpu --backend cuda --every $(or $(EVERY),8) $(SIMULATED) || failed=1; exit $$failed

check: $(STAMP)  ## format, lint, types, layers and fast tests (below 60 s)
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) tools/link_tree.py
	$(RUN) -m mypy
	$(RUN) -m pytest -q -m "not slow" tests/test_layers.py tests/test_builder.py tests/test_verifier.py tests/passes

bench: $(STAMP)  ## hlojit and JAX turn by turn: ratios (a few minutes)
	$(RUN) -m benchmarks
	$(RUN) -m benchmarks.calls

bench-functions: $(STAMP)  ## examples/functions, unchanged, beside NumPy, numba and JAX (ten minutes; ARGS="--names kalman sir" and others)
	$(RUN) -m benchmarks.functions $(ARGS)

bench-gradients: $(STAMP)  ## gradients of programs beside jax.grad (half a minute)
	$(RUN) -m benchmarks.gradients $(ARGS)

bench-sorting: $(STAMP)  ## sorts and selections of every type, length and input beside their peers (ARGS="--quick" and others)
	$(RUN) -m benchmarks.sorting $(ARGS)

bench-linear-algebra: $(STAMP)  ## factorizations and systems beside JAX's (six minutes; ARGS="--quick" and others)
	$(RUN) -m benchmarks.linear_algebra $(ARGS)

bench-gpu: $(STAMP)  ## hlojit beside JAX on the machine's GPU, in one process (nine minutes; ARGS="--quick" and others: docs/cuda.md)
	env -u HLOJIT_CUDA $(RUN) -m benchmarks.gpu $(ARGS)

roofline: $(STAMP)  ## what every kernel of the GPU's benchmark takes at least, without a GPU (four minutes)
	$(RUN) -m benchmarks.gpu_roofline

bench-full: $(STAMP)  ## the same with more repetitions
	$(RUN) -m benchmarks --full

replay: $(STAMP)  ## kernels and programs before and after: make replay BASE=<commit> (default: HEAD)
	$(RUN) tools/process_replay.py against $(or $(BASE),HEAD)

assemble: $(STAMP)  ## every kind of GPU kernel as PTX and machine code, without a GPU: registers, spills, accesses (two minutes)
	$(RUN) tools/assemble.py

exhaustive: $(STAMP)  ## all 2^32 inputs of every unary f32 function (hours)
	$(RUN) tools/exhaustive_ulp.py

docs: $(STAMP)  ## make the generated pages of docs/ anew
	$(RUN) tools/op_status.py
	$(RUN) tools/op_attributes.py
	$(RUN) tools/constraint_table.py
	$(RUN) tools/switch_table.py
	$(RUN) tools/comparison_table.py
	$(RUN) tools/sorting_table.py
	$(RUN) tools/linear_algebra_table.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info
