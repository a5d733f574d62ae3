// Command byre is a qcow2 toolbox: it chooses its personality from the name it is called by.
package main

func main() {}
