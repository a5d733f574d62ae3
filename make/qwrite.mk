# The writing half of qcow2.

.PHONY: crash
CUTS ?= 1000000
crash: ## power cuts in random histories of every flavour of image (CUTS=1000000)
	BYRE_CUTS=$(CUTS) $(GO) test ./qcow2 -run PowerCuts -count=1 -timeout 4h -v
