# Workloads and their comparison.
RACE_PKGS += ./bench

# The tool to compare with, and where its figures go.
AGAINST     ?= qemu-img=qemu-img
PERFORMANCE ?= docs/performance
MATRICES    ?=
BENCH_FLAGS ?=
REPORT      ?= $(firstword $(wildcard $(PERFORMANCE)/*.json))

.PHONY: simplebench-performance report-check report-screenshots

simplebench-performance: build ## measure every matrix against AGAINST (MATRICES names some) and write docs/performance.md
	$(BIN)/byre simplebench --bin byre=$(BIN)/byre --against $(AGAINST) --results $(PERFORMANCE) --page $(PERFORMANCE).md --resume $(BENCH_FLAGS) all $(MATRICES)

report-check: ## open a report in headless Chromium: phone and desktop, light and dark, console quiet
	BYRE_BROWSER=1 $(GO) test -count=1 -run TestReportsInABrowser ./bench/compare

report-screenshots: ## pictures of a report (REPORT=results.json) for the documentation
	@mkdir -p docs/images
	BYRE_BROWSER=1 BYRE_SCREENSHOTS=$(abspath docs/images) BYRE_REPORT=$(abspath $(REPORT)) $(GO) test -count=1 -run TestReportsInABrowser ./bench/compare
