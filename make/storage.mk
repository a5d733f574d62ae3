# The I/O engines and what stands on them.
RACE_PKGS += ./internal/ioqueue/... ./internal/iobuf/... ./storage/file/... ./storage/conformance/...
.PHONY: test-storage-long
test-storage-long: ## every engine in every cache mode on both kinds of loop device, and twenty rounds of direct writes among zero-writes
	BYRE_LONG=1 $(GO) test -count=1 -timeout 60m ./storage/file
