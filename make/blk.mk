# Staged interleavings of two requests on every kind of qcow2 image, many more than `make test` tries.
.PHONY: test-staged
test-staged:
	BYRE_STAGE_CASES=20000 $(GO) test -timeout 60m -run 'TestWhatever|TestAFailure' ./qcow2
	$(GO) test -race -tags invariants -count 3 ./block
