.PHONY: check-mutations

# 5,000 mutated images through check, repair, check, each judged by the real tool too; power cuts in the repairs of as many.
check-mutations: ## the whole of the tests with broken images (some 15 minutes)
	CHECK_MUTATIONS=5000 $(GO) test ./qcow2/check -run 'MutatedImages|PowerCut' -count=1 -timeout 60m -v
