package compare

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Chapter is one matrix of a page with its results.
type Chapter struct {
	Matrix  Matrix
	Results *Results
	Picture string // name of its plot, relative to the page; may be empty
}

// rival is a comparison of the subject with another binary under the same choices.
type rival struct {
	chapter string
	where   string
	cmp     Comparison
	faster  bool
	unit    string
}

// WritePage writes a Markdown page about one binary, by its label: where it is slower and faster than the others, then
// every matrix. How it was measured is said at the top; reproduce is the command that makes the page again.
func WritePage(w io.Writer, subject, reproduce string, chapters []Chapter) error {
	var b strings.Builder
	var all []rival
	for _, ch := range chapters {
		all = append(all, ch.rivals(subject)...)
	}
	fmt.Fprintf(&b, "# Performance\n\n")
	writeMethod(&b, subject, reproduce, chapters)
	writeVerdicts(&b, subject, all)
	for _, ch := range chapters {
		if err := ch.write(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeMethod(b *strings.Builder, subject, reproduce string, chapters []Chapter) {
	if len(chapters) == 0 {
		return
	}
	first := chapters[0].Results
	fmt.Fprintf(b, "Measured on %s on %s.\n\n", first.Started.Format(time.DateOnly), first.Machine)
	for _, label := range slices.Sorted(maps.Keys(first.Versions)) {
		fmt.Fprintf(b, "* %s: %s\n", markdownCell(label), markdownCell(first.Versions[label]))
	}
	fmt.Fprintf(b, "\nRuns of all columns are interleaved, %d rounds after a warm-up. Differences are the geometric means of the ratios of paired runs; "+
		"%s marks a difference below %.3g %%, ? one that the %.4g %% confidence interval does not show. This page is made by\n\n    %s\n\n",
		first.Rounds, `\~`, first.margin()*100, first.confidence()*100, reproduce)
}

func writeVerdicts(b *strings.Builder, subject string, all []rival) {
	if len(all) == 0 {
		return
	}
	count := map[string]int{}
	var slower []rival
	for _, v := range all {
		switch {
		case v.cmp.Verdict == Different && v.faster:
			count["faster"]++
		case v.cmp.Verdict == Different:
			count["slower"]++
			slower = append(slower, v)
		case v.cmp.Verdict == Same:
			count["same"]++
		default:
			count["unclear"]++
		}
	}
	fmt.Fprintf(b, "Of %d comparisons with other tools on the same work, %s is faster in %d and slower in %d; %d show no difference, in %d the measurement does not tell.\n\n",
		len(all), subject, count["faster"], count["slower"], count["same"], count["unclear"])
	fmt.Fprintf(b, "## Where %s is slower\n\n", subject)
	if len(slower) == 0 {
		b.WriteString("Nowhere in these measurements.\n\n")
		return
	}
	b.WriteString("| matrix | work | against | time or rate | from | to |\n|---|---|---|---|---|---|\n")
	for _, v := range slower {
		q := v.cmp.Ratio
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", v.chapter, markdownCell(v.where), markdownCell(v.cmp.Base), percent(q.Value), percent(q.Low), percent(q.High))
	}
	b.WriteString("\n")
}

// rivals compares the columns of the subject with those of other binaries that differ in nothing else.
func (ch Chapter) rivals(subject string) (list []rival) {
	r := ch.Results
	for _, row := range r.Cases {
		for _, env := range r.Envs {
			if env.Switches["bin"] != subject {
				continue
			}
			for _, base := range r.Envs {
				if base.Switches["bin"] == subject || rest(base, "bin") != rest(env, "bin") {
					continue
				}
				cmp := r.Compare(row, env, base)
				if cmp.Ratio.N == 0 {
					continue
				}
				dimension := r.Cell(row, env).Dimension
				list = append(list, rival{chapter: ch.Matrix.Name, where: CellName(row.ID, rest(env, "bin")), cmp: cmp,
					faster: (cmp.Ratio.Value < 1) == (dimension == Seconds), unit: dimension})
			}
		}
	}
	return list
}

func (ch Chapter) write(b *strings.Builder) error {
	fmt.Fprintf(b, "## %s\n\n%s.\n\n", upperFirst(ch.Matrix.Name), strings.TrimSuffix(ch.Matrix.Title, "."))
	if ch.Picture != "" {
		fmt.Fprintf(b, "![%s](%s)\n\n", ch.Matrix.Name, ch.Picture)
	}
	no := false
	if err := ch.Results.WriteMarkdown(b, TableOptions{Sentences: &no}); err != nil {
		return err
	}
	fmt.Fprintf(b, "\n<details><summary>Template</summary>\n\n```bash\n%s```\n\n</details>\n\n", ch.Matrix.Template)
	return nil
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
