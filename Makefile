# Everything a fresh machine needs: Python 3.11+ with venv, Java 17+, make.
#
#   make demo    set up and run the main job under kills
#   make test    set up and run every check and every test
#   make setup   what both use; leaves .venv, so that .venv/bin/onceonly runs afterwards

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: textbook page-cost page-pictures size brokers clients matrix stores bench bench-quick bench-page scale scale-page soak soak-page power model model-large trace proof-pages test-all help machine setup demo test lint types imports docs diagrams unit integration acceptance format lock clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; \
  done)
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
BIN := .venv/bin

# Each of Spark's Python processes would compile every module anew; some machines and images say so for all of theirs.
unexport PYTHONDONTWRITEBYTECODE

help:
	@sed -n '3,5s/^# *//p' Makefile

# One sentence for each thing that is missing, before anything is created.
machine:
	@fail() { echo "error: $$1" >&2; exit 1; }; \
	[ -n "$(PYTHON)" ] && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || fail 'Python 3.11 or newer is needed and was not found; install it (Debian, Ubuntu: apt install python3 python3-venv), then run make again.'; \
	"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null \
	  || fail "$(PYTHON) has no venv module; install it (Debian, Ubuntu: apt install python3-venv), then run make again."; \
	version=$$("$(JAVA)" -version 2>&1) \
	  || fail 'Java 17 or newer is needed and was not found; install it (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME, then run make again.'; \
	[[ "$$version" =~ \"([0-9]+) ]] && (( BASH_REMATCH[1] >= 17 )) \
	  || fail "Java 17 or newer is needed, and $(JAVA) is older; install it (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME, then run make again."

setup: machine .venv/.installed .venv/.jars

# An interrupted installation leaves no stamp, so the next call starts it anew. Of two packages that are built here, the pip
# of Debian 12 warns that a later pip builds them otherwise, which is nobody's to mend; network trouble is still told.
.venv/.installed: requirements.lock pyproject.toml proof/pyproject.toml
	"$(PYTHON)" -m venv .venv
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e proof
	@touch $@

.venv/.jars: .venv/.installed src/onceonly/jars/jars.lock proof/src/onceonly_proof/embedded/jars.lock
	$(BIN)/onceonly jars
	@touch $@

demo: setup
	$(BIN)/onceonly demo

# Where those tests are: to look for them among all takes half a minute.
INTEGRATION := tests/integration tests/formal tests/unit/test_jars.py

# The types take longer than the other two checks, which go on beside them. The site is built by a test of it. One pytest
# for each kind: the quick ones fail first, and no client's thread outlives its kind.
# Files go to the processes in the order of their names, those with few long tests first: none of them is left for the end.
# Integration tests wait for servers a third of their time, so three of them share two cores.
test: setup
	$(MAKE) --no-print-directory --jobs=2 lint types imports
	$(BIN)/pytest -n auto --dist worksteal -m "not integration and not acceptance and not long"
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "integration and not long" $(INTEGRATION) --durations=15
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "acceptance and not long" tests/acceptance --durations=25

# Also what repeats an acceptance test on another way, or kills each recovery too: half an hour more.
# Needs strace, pgbouncer, Chromium and Prometheus (Debian, Ubuntu: apt install strace pgbouncer chromium-headless-shell prometheus), and /dev/fuse with root or fusermount3 (apt install fuse3); where one is
# missing, the tests that use it fail and say so.
test-all: test brokers clients matrix stores
	$(BIN)/pytest -m long

# Code lines of both distributions, words of the docs, and the modules that one epoch enters before its sink.
size: setup
	$(BIN)/python -m benchmarks.size $(SIZE)

# The Kafka sink on each older broker that people run, and campaigns on them over TLS, with throttled clients.
brokers: setup
	for release in 3.9 3.3; do \
	  ONCEONLY_BROKER=$$release $(BIN)/pytest -n 2 --dist loadfile -m "integration and not long" tests/integration/test_kafka_*.py || exit 1; \
	  $(BIN)/onceonly verify --sink kafka --broker $$release+tls+quotas --crashes 20 || exit 1; \
	done
	$(BIN)/onceonly verify --sink kafka --broker 4.2+tls+quotas --crashes 20

# The Kafka sink on the oldest kafka-python that its extra takes; the newest is in the lock.
clients: setup
	oldest=$$($(BIN)/python -c 'from onceonly.sinks.kafka.wire import names; print(names.OLDEST)'); \
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv/oldest kafka-python==$$oldest; \
	PYTHONPATH=.venv/oldest $(BIN)/pytest -n 2 --dist loadfile tests/unit/test_kafka_*.py tests/integration/test_kafka_wire.py

# Campaigns with their checkpoints on S3 and on HDFS, whose servers die, too.
stores: setup
	for store in s3 hdfs; do $(BIN)/onceonly verify --checkpoint $$store --crashes 30 || exit 1; done

# Each PySpark that is promised, beside the one in the lock, which runs everything else: both ways under kills, and a
# checkpoint that comes from the one before. Each has a folder of its own in the cache folder, which goes before the
# environment; the first time fetches 400 MB for each.
MATRIX ?= 3.5.9 4.0.5 4.1.4 4.3.0
matrix: setup
	cache=$$($(BIN)/python -c 'from onceonly.jars.locked import cache_folder; print(cache_folder())')/pyspark; \
	before=; \
	for version in $(MATRIX); do \
	  folder="$$cache/$$version"; \
	  [ -e "$$folder/.whole" ] || { rm -rf "$$folder"; \
	    $(BIN)/pip install --quiet --disable-pip-version-check --target "$$folder" "pyspark==$$version" \
	      && touch "$$folder/.whole"; } || exit 1; \
	  ONCEONLY_PYSPARK=$$version ONCEONLY_PYSPARK_BEFORE="$$before" PYTHONPATH="$$folder$${PYTHONPATH:+:$$PYTHONPATH}" \
	    $(BIN)/pytest tests/acceptance/test_pyspark.py tests/acceptance/test_iceberg_spark.py || exit 1; \
	  before="$$folder"; \
	done

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# The site, in build/docs. It fetches nothing; a warning is an error.
docs: setup
	$(BIN)/sphinx-build --builder html --fail-on-warning --nitpicky --keep-going --quiet docs build/docs

# Draws docs/diagrams/*.svg anew where their text has changed.
diagrams: setup
	$(BIN)/python docs/diagrams/render.py

# Takes the pictures of docs/how-to/page.md anew: a job under kills with an epoch in doubt at its end, its page, the list
# of it and two others, one of which fails, and Chromium (Debian, Ubuntu: apt install chromium-headless-shell). Three
# minutes on a quiet machine. Look at each before it is committed.
page-pictures: setup
	ONCEONLY_UI_PICTURES=docs/how-to/page ONCEONLY_UI_JOB=/tmp/data/rate ONCEONLY_UI_MINUTES=1 \
	  $(BIN)/pytest tests/acceptance/test_ui_beside_a_job.py -k lost_or_told_twice
	rm -rf /tmp/data/rate

# Prints what an open page costs the driver, its executors and its JVM among it: in turns with and without one. It is
# red above 1 % of a processor. With Chromium, on a machine with nothing else to do.
page-cost: setup
	$(BIN)/pytest -s tests/acceptance/test_ui_beside_a_job.py -k costs_the_driver

# Records the textbook's runs anew, killed at each crash point, and draws what the docs show of them: half an hour or more.
textbook: setup
	$(BIN)/python -m onceonly_proof.textbook.record
	$(BIN)/python -m onceonly_proof.textbook.draw docs/proof/textbook

# Writes what README and docs show of recorded runs: the guarantee matrix, the counts with and without alignment, the run
# in the shape of Kafka's own test, recovery times, power cuts, the textbook's pictures.
proof-pages: setup
	$(BIN)/python -m onceonly_proof.campaign.matrix docs/proof/result.json
	$(BIN)/python -m onceonly_proof.campaign.unaligned_page
	$(BIN)/python -m onceonly_proof.campaign.shape_pages
	$(BIN)/python -m onceonly_proof.power.page
	$(BIN)/python -m onceonly_proof.textbook.draw docs/proof/textbook

unit: setup
	$(BIN)/pytest -n auto --dist worksteal -m "not integration and not acceptance and not long" --ignore tests/mutation

# Known defects, put into a copy of the code one at a time: each must turn its tests red. `make test` does one of
# each group, and sees that all still apply.
mutants: setup
	$(BIN)/python -m tests.mutation.mutate

integration: setup
	$(BIN)/pytest -m integration

acceptance: setup
	$(BIN)/pytest -m acceptance

# The protocol's model in TLA+, formal/: every state within a small bound, and its mutants; then a larger bound.
model: setup
	$(BIN)/pytest tests/formal

model-large: setup
	$(BIN)/python -m onceonly_proof.tla Large.cfg

# Holds the event log of a real run, EVENTS=DIR, against the model.
trace: setup
	$(BIN)/python -m onceonly_proof.traces "$(EVENTS)"

# onceonly beside Spark's own Kafka sink and PyFlink: benchmarks/results/latest.json. About 90 minutes, or 8, on a quiet
# machine with 6 GB free in its folder for temporary files. An interrupted one is gone on with. PyFlink gets an
# environment of its own in the cache folder; where it cannot, its figures are null, with the reason.
# More: .venv/bin/python -m benchmarks --help
bench: setup
	$(BIN)/python -m benchmarks $(BENCH)

bench-quick: setup
	$(BIN)/python -m benchmarks --size quick $(BENCH)

# Records the latest results in docs/proof, those of the full size beside the ones before, and writes
# docs/explanation/performance.md, which docs/index.md must name.
bench-page: setup
	$(BIN)/python -m benchmarks.page benchmarks/results/latest.json

# How decisions, the log, commits and the broker's heap grow: benchmarks/results/scale.json. Ten minutes on a quiet
# machine; needs a JDK, for jcmd.
scale: setup
	$(BIN)/python -m benchmarks.scale $(SCALE)

# Records the latest results in docs/proof, and writes docs/explanation/scale.md with the models fitted to them.
scale-page: setup
	$(BIN)/python -m benchmarks.scale.page benchmarks/results/scale.json

# A query that runs for an hour: does anything grow? benchmarks/results/soak.json. Needs a JDK, for jcmd.
soak: setup
	$(BIN)/python -m benchmarks.soak $(SOAK)

# Records the latest soak in docs/proof, and writes docs/explanation/soak.md.
soak-page: setup
	$(BIN)/python -m benchmarks.soak.page benchmarks/results/soak.json

# Queries on a disk that forgets what was not synced, cut until POWER says: docs/explanation/power-loss.md. Needs /dev/fuse
# and root, or fusermount3. An interrupted one is gone on with.
POWER ?= 500
power: setup
	mkdir -p build && $(BIN)/onceonly verify power-cuts $(POWER) --json build/power.json

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Keeps the versions that are locked already; UPGRADE=--upgrade takes the newest that fit.
EXTRAS := databases demo fast feeds metrics msk stores traces ui

lock: .venv/.installed
	$(BIN)/uv pip compile pyproject.toml proof/pyproject.toml $(EXTRAS:%=--extra %) --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-package onceonly --quiet --custom-compile-command 'make lock' \
	  $(UPGRADE) -o requirements.lock
	$(BIN)/uv pip compile benchmarks/contenders/flink.in --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --quiet --custom-compile-command 'make lock' \
	  $(UPGRADE) -o benchmarks/contenders/flink.lock

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
