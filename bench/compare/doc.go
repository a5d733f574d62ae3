// Package compare turns a small template into a matrix of shell commands, runs them fairly and says which is
// faster, by how much, and how sure that is.
//
// # Template grammar
//
// A template is a bash script with switches. {a|b} is a column switch, [x|y] a row switch; the columns of the
// matrix are the product of all column switches in the order of their appearance (the last varies fastest), the
// rows likewise. Every cell of the matrix is one script: the template with one alternative in place of each switch.
//
//	$qemu_img create -f qcow2 x.qcow2 1G
//	$qemu_img bench -w -t none {-i native|-i io_uring} [-s 4K|-s 64K] x.qcow2
//
// The classic grammar (text, {t|t}, [t|t] with non-empty alternatives) keeps its meaning. What it refused is used
// for more:
//
//   - an alternative may be empty: {-n|}, [|-o 512];
//   - a backslash before one of { } [ ] | makes it a plain character; every other backslash is the shell's;
//   - {{name: a|b}} is a named column switch and {{name}} uses its choice again, [[name: x|y]] and [[name]] are the
//     row forms; space around these alternatives is dropped, and a name may be used before it is defined;
//   - {{!exclude name=a, other=x}} takes the cells with these choices out of the matrix. A switch without a name
//     is called col1, col2, … or row1, row2, … by its place among the unnamed switches of its kind;
//   - ${VAR}, {1..3}, {}, "{ cmd; }", "[ test ]", "[[ test ]]", file[0-9] have no bar of their own and are the
//     shell's; a switch may stand inside ${…}, "{ …; }", "[ … ]" and "[[ … ]]";
//   - $((…)) and "[[ … ]]" are the shell's with their bars, and so is || outside of switches. A single bar is an
//     error there, since it is more often a forgotten brace than a pipe; a pipe is written \|.
//
// A switch within a switch, an unclosed or stray bracket and an empty template are errors with line and column.
//
// # Measuring
//
// Runs are interleaved: in each round every row is measured once in every column, in an order that changes from
// round to round. So slow drifts of the machine hit all columns alike, and the values of one round form a pair. The
// ratio of two columns is the geometric mean of the ratios of their pairs, with Student's confidence interval
// on the logarithms.
//
// The package knows nothing of images: it runs commands and reads what they print.
package compare
