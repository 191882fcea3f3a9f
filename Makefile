# The contributor's manual: `make help`.  Everything installs itself, once: a virtual environment per
# purpose, and a Java runtime below .cache where the machine has none that suits Spark.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BOOT ?= python3
PIP := -m pip install --quiet --disable-pip-version-check
# Spark 3.5 is happiest on the Pythons of its time; the newest Spark on the newest Python.
PYTHON = $$($(BOOT) tools/pythons.py 3.13 3.12 3.11 3.10)
PYTHON35 = $$($(BOOT) tools/pythons.py 3.11 3.10 3.12 3.13)
PYTHONS = $(shell $(BOOT) tools/pythons.py | cut -d' ' -f1)
NEWEST := .venv/bin/python -m tools.in_venv
SPARK35 := .venv35/bin/python -m tools.in_venv
ORACLE := .venv-oracle/bin/python
HUDI_JAR := .cache/hudi/hudi-spark3.5-bundle_2.12-1.1.1.jar

# Tests of the house rules run once, in `make check`; those of the wheel once too, on the newest Spark.
WITHOUT_SPARK := $(filter-out tests/spark tests/hdfs tests/zookeeper tests/chaos tests/packaging tests/interop tests/house tests/processes tests/simulation tests/data tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
# What others do meanwhile, how a write's end is told, and what is refused, depends on no Spark: one is enough.
ON_NEWEST_ALONE := $(patsubst %,tests/spark/test_%.py,azure cleaned_meanwhile ends_told many_writers)
ON_SPARK35_ALONE := $(patsubst %,tests/spark/test_%.py,bad_input broken_tables progress)
ON_SPARK35 := tests/spark $(addprefix --ignore=,$(ON_NEWEST_ALONE)) \
	tests/packaging/test_archive.py tests/packaging/test_java_by_package.py
ON_NEWEST := tests/spark $(addprefix --ignore=,$(ON_SPARK35_ALONE)) tests/packaging
NEWEST_PYTHON = $(firstword $(PYTHONS))
OLDEST = $(lastword $(PYTHONS))
# Servers are the same whichever Python asks them: the oldest one does here, the newest one through Spark.  Nor does
# it depend on the Python what becomes of a driver that stands still.
ON_EACH_PYTHON := -k 'not s3 and not azure and not test_pauses'
ON_OLDEST_ALONE := -k 's3 or azure or test_pauses'
# The simulated world knows no Spark, but it is the same on every Python: once is enough.
SEEDS ?= 0:17000
# Of each story in which writers know of each other.
SHARED ?= 0:500
SHARING := many-writers one-row overtaken one-new-key cleaned-while-asleep services thieves
# Extra arguments for pytest: make test-spark ARGS='-k upsert -x'
ARGS ?=

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

# -- what a user tries first ---------------------------------------------------------------------

.PHONY: demo
demo: .venv/.installed ## a cluster, a write, an executor killed in the middle of it, and what became of the table
	@$(NEWEST) python -m tools.demo

# -- tests -----------------------------------------------------------------------------------------

# Much of a test is waiting, so the two Sparks run side by side, and so do the Pythons by twos.
IN_ONE_PIECE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: test test-unit test-pythons test-servers test-spark test-spark35
test: test-unit .venv/.installed .venv35/.installed ## all tests but check, hdfs, processes, simulate and interop: without Spark on the oldest and the newest Python, then on both Sparks
	@$(MAKE) --no-print-directory -j2 $(IN_ONE_PIECE) test-spark test-spark35

test-unit: .venv-unit-$(OLDEST)/.installed .venv-unit-$(NEWEST_PYTHON)/.installed ## tests without Spark, on the oldest and the newest Python of 3.10 to 3.13 that is here
	@$(MAKE) --no-print-directory -j2 $(IN_ONE_PIECE) test-servers $(addprefix test-unit-,$(OLDEST) $(filter-out $(OLDEST),$(NEWEST_PYTHON)))

test-pythons: $(foreach version,$(PYTHONS),.venv-unit-$(version)/.installed) ## by hand: the same on every Python from 3.10 to 3.13 that is here
	@echo "Pythons on this machine: $(PYTHONS)"
	@$(MAKE) --no-print-directory -j2 $(IN_ONE_PIECE) test-servers $(addprefix test-unit-,$(PYTHONS))

test-unit-%: .venv-unit-%/.installed
	@echo "== without Spark, Python $*"
	@.venv-unit-$*/bin/python -m tools.in_venv python -m pytest -q $(WITHOUT_SPARK) $(ON_EACH_PYTHON) $(ARGS)

test-servers: .venv-unit-$(OLDEST)/.installed
	@echo "== without Spark, with servers, Python $(OLDEST)"
	@.venv-unit-$(OLDEST)/bin/python -m tools.in_venv python -m pytest -q $(WITHOUT_SPARK) $(ON_OLDEST_ALONE) $(ARGS)

test-spark: .venv/.installed ## tests on the newest Spark
	@echo "== Spark $$(.venv/bin/python -c 'import pyspark; print(pyspark.__version__)')"
	@$(NEWEST) python -m pytest -q $(ON_NEWEST) $(ARGS)

test-spark35: .venv35/.installed ## tests on Spark 3.5
	@echo "== Spark $$(.venv35/bin/python -c 'import pyspark; print(pyspark.__version__)')"
	@$(SPARK35) python -m pytest -q $(ON_SPARK35) $(ARGS)

.PHONY: hdfs
hdfs: .venv/.installed ## tests of tables on HDFS, and of locks in ZooKeeper, whose servers are in PySpark's own jars
	@$(NEWEST) python -m pytest -q tests/hdfs tests/zookeeper $(ARGS)

.PHONY: processes
processes: .venv/.installed ## eighteen writers on one table, each a process, two of them with Spark, some of them killed
	@$(NEWEST) python -m pytest -q tests/processes $(ARGS)

.PHONY: interop
interop: .venv35/.installed .venv-oracle/.installed $(HUDI_JAR) ## tests against the real Hudi and hudi-rs
	@$(WITH_ORACLE) $(SPARK35) python -m pytest -q tests/interop $(ARGS)

# One Spark beside the other, as in `make test`: each has a cluster, whose hosts are nobody else's.
WITH_ORACLE := SPARKROBUST_ORACLE_PYTHON=$(CURDIR)/$(ORACLE) SPARKROBUST_ORACLE_JAR=$(CURDIR)/$(HUDI_JAR)
# What is not there is installed, so nothing but namespaces may be skipped for want of it.
ALL_OF_IT := SPARKROBUST_CHAOS_ALL=1
.PHONY: chaos chaos-newest chaos-spark35 random-faults
chaos: .venv/.installed .venv35/.installed .venv-oracle/.installed $(HUDI_JAR) ## real clusters whose executors, drivers, disks and networks fail, on both Sparks
	@$(MAKE) --no-print-directory -j2 $(IN_ONE_PIECE) chaos-newest chaos-spark35

# By these seeds the writes of the last line are on a small disk, and in a bucket.
chaos-newest: .venv/.installed
	@echo "== chaos on the newest Spark"
	@$(WITH_ORACLE) $(ALL_OF_IT) $(NEWEST) python -m pytest -q $(or $(ARGS),tests/chaos examples/chaos)
	@$(if $(ARGS),,$(NEWEST) python -m fault_injection spark --runs 3 --seed 8)

chaos-spark35: .venv35/.installed
	@echo "== chaos on Spark 3.5"
	@$(WITH_ORACLE) $(ALL_OF_IT) $(SPARK35) python -m pytest -q $(or $(ARGS),tests/chaos examples/chaos)
	@$(if $(ARGS),,$(SPARK35) python -m fault_injection spark --runs 3 --seed 4)

# So many take an hour or two, and pytest's own limit is for tests that take minutes.
FAULTS ?= 300
SEED ?= 7
random-faults: .venv/.installed .venv-oracle/.installed $(HUDI_JAR) ## by hand: random faults on the newest Spark, whose tables Hudi reads and goes on with (FAULTS=300 SEED=7)
	@$(WITH_ORACLE) $(ALL_OF_IT) SPARKROBUST_RANDOM_FAULTS=$(FAULTS) SPARKROBUST_RANDOM_SEED=$(SEED) \
		$(NEWEST) python -m pytest -q -s -o faulthandler_timeout=86400 tests/chaos/test_random.py $(ARGS)

.PHONY: simulate
simulate: .venv/.installed ## the protocol in 20,000 simulated worlds full of faults (SEEDS=A:B, SHARED=A:B), and in one for each call and fault
	@nice .venv/bin/python -m fault_injection --seeds $(SEEDS)
	@for story in $(SHARING); do echo "== $$story"; \
		nice .venv/bin/python -m fault_injection --scenario $$story --seeds $(SHARED) || exit 1; done
	@nice .venv/bin/python -m fault_injection --each-call
	@nice .venv/bin/python -m pytest -q -n auto --dist worksteal tests/simulation $(ARGS)

.PHONY: exhaustive
exhaustive: .venv/.installed ## by hand: all that small worlds can come to (tests/simulation goes through the smallest)
	@.venv/bin/python -m fault_injection --exhaustive quick

.PHONY: check
check: .venv/.installed ## style (ruff), types (mypy --strict), layers, and that generated files are current
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@$(NEWEST) python -m pytest -q tests/house

# What decides is tested where it is: in tests/core, without Spark and without a store.
COVERED = .venv-unit-$(firstword $(PYTHONS))/bin/python -m tools.in_venv python -m coverage
.PHONY: coverage
coverage: .venv-unit-$(firstword $(PYTHONS))/.installed ## tests/core run every line and every branch of sparkrobust/core
	@mkdir -p build
	@$(COVERED) run --branch --source=sparkrobust/core --data-file=build/coverage -m pytest -q tests/core $(ARGS)
	@$(COVERED) report --data-file=build/coverage --show-missing --fail-under=100

.PHONY: mutation
mutation: .venv-mutation/.installed ## by hand: tests/core notice 90 % of all small changes to what decides (ARGS=--max-children=2)
	@.venv-mutation/bin/python tools/mutation.py $(ARGS)

.PHONY: bench
bench: ## side by side with plain parquet, Hudi, Delta and Iceberg; figures, JSON and a plot into build/bench
	@$(PYTHON35) benchmarks/install.py
	@.venv-bench/bin/python -m tools.in_venv python -m benchmarks run --out build/bench $(ARGS)

# -- what is built ---------------------------------------------------------------------------------

.PHONY: zip wheel docs
zip: ## dist/sparkrobust.zip, for spark-submit --py-files
	@$(BOOT) tools/make_zip.py dist/sparkrobust.zip

wheel: .venv/.installed ## a wheel in dist
	@rm -rf build/lib build/bdist.*
	@.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .

docs: ## write the generated parts again: the README's options and conf/
	@$(BOOT) -m tools.docs

.PHONY: clean distclean
clean: ## remove what tests and builds leave
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find sparkrobust fault_injection tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environments and the downloads too
	@rm -rf .venv .venv35 .venv-oracle .venv-bench .venv-mutation .venv-unit-* .cache

# -- installation, each step once --------------------------------------------------------------------

.venv/.installed: setup.cfg tools/java_home.py
	@echo "installing the newest Spark into .venv"
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@.venv/bin/python $(PIP) setuptools wheel
	@.venv/bin/python $(PIP) -e '.[dev,spark4,connect]'
	@$(NEWEST) true
	@touch $@

.venv35/.installed: setup.cfg tools/java_home.py
	@echo "installing Spark 3.5 into .venv35"
	@test -x .venv35/bin/python || $(PYTHON35) -m venv .venv35
	@.venv35/bin/python $(PIP) setuptools wheel
	@.venv35/bin/python $(PIP) -e '.[dev,spark35]'
	@$(SPARK35) true
	@touch $@

.venv-unit-%/.installed: setup.cfg
	@echo "installing what the tests without Spark need into .venv-unit-$*"
	@test -x .venv-unit-$*/bin/python || $$($(BOOT) tools/pythons.py $*) -m venv .venv-unit-$*
	@.venv-unit-$*/bin/python $(PIP) setuptools wheel
	@.venv-unit-$*/bin/python $(PIP) -e '.[test]'
	@touch $@

.venv-mutation/.installed: setup.cfg
	@echo "installing mutmut into .venv-mutation"
	@test -x .venv-mutation/bin/python || $(PYTHON) -m venv .venv-mutation
	@.venv-mutation/bin/python $(PIP) setuptools wheel
	@.venv-mutation/bin/python $(PIP) -e '.[test]' 'mutmut>=3.8,<4'
	@touch $@

.venv-oracle/.installed: tools/hudi_jar.py
	@echo "installing Spark 3.5 and hudi-rs into .venv-oracle"
	@test -x $(ORACLE) || $(PYTHON35) -m venv .venv-oracle
	@$(ORACLE) $(PIP) setuptools wheel
	@$(ORACLE) $(PIP) 'pyspark>=3.5,<3.6' hudi pyarrow pandas 'numpy<2.3'
	@touch $@

$(HUDI_JAR): .venv-oracle/.installed
	@$(ORACLE) -m tools.in_venv python -m tools.hudi_jar $@
