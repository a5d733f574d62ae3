package compare

import (
	"embed"
	"path"
	"strings"
)

//go:embed matrices/*.sh
var matrixFiles embed.FS

// Matrix is a ready-made template. It uses {{bin}}, the tool to be measured, and [[dir]], a folder to work in.
type Matrix struct {
	Name string
	// Title is the first line of the template: what it measures.
	Title    string
	Template string
}

// Matrices returns the ready-made templates by name.
func Matrices() []Matrix {
	files, err := matrixFiles.ReadDir("matrices")
	if err != nil {
		panic("compare: embedded files are missing: " + err.Error())
	}
	var list []Matrix
	for _, f := range files {
		data, err := matrixFiles.ReadFile(path.Join("matrices", f.Name()))
		if err != nil {
			panic("compare: embedded files are missing: " + err.Error())
		}
		text := string(data)
		title, _, _ := strings.Cut(text, "\n")
		list = append(list, Matrix{Name: strings.TrimSuffix(f.Name(), ".sh"), Title: strings.TrimPrefix(title, "# "), Template: text})
	}
	return list
}

// FindMatrix finds a ready-made template by its name.
func FindMatrix(name string) (Matrix, bool) {
	for _, m := range Matrices() {
		if m.Name == name {
			return m, true
		}
	}
	return Matrix{}, false
}
