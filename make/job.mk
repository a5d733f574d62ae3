# Long operations over images.
RACE_PKGS += ./job/...

.PHONY: bench
bench: build ## speed against the installed qemu-img, as a table of ratios (some 4 GiB of scratch space)
	$(GO) run ./internal/cmd/speed -byre $(BIN)/byre
