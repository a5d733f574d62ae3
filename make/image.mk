# Listings.
.PHONY: test-listings-long
test-listings-long: ## info and map against the installed tool over the whole matrix of images
	BYRE_TEST_LONG=1 $(GO) test -count=1 -timeout 60m -run 'InfoAndMap|Golden' ./cli
