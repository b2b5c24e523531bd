// Empty on purpose: a package with a file of this kind may declare functions without a body (see pin.go).
