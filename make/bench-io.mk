# The I/O engines against those of the real tool, and against fio.
.PHONY: bench-io
BENCH_DIR ?= $(or $(TMPDIR),/tmp)
bench-io: build ## byre bench against qemu-img bench, raw images: time ratios (BENCH_DIR, ROUNDS, ENGINE)
	scripts/bench-io.sh $(BIN)/byre '$(BENCH_DIR)'
