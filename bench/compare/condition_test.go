package compare

import (
	"strings"
	"testing"
)

func TestConditionsAreJudgedWithConfidence(t *testing.T) {
	r := fixture([]string{"old", "new", "x/y z"}, []string{"r"}, [][]string{{"1 1.01 0.99 1", "1.1 1.11 1.09 1.1", "1.2 0.7 1.5 1.1"}})
	tests := []struct {
		cond                  string
		holds, maybe, missing bool
	}{
		{"new > old * 1.05", true, false, false},
		{"new > old*1.2", false, false, false},
		{"new<old", false, false, false},
		{"old < new", true, false, false},
		{"B > A * (1 + 0.05)", true, false, false},
		{"'x/y z' > old", false, true, false},
		{"new - old > old / 20", true, false, false},
		{"new / old >= 1.05", true, false, false},
		{"new > 2", false, false, false},
		{"old + new <= 2.2 * 1", true, false, false},
		{"old >= old", true, false, false},
		{"old > old", false, false, false},
		{"old - new > 0", false, false, false},
		{"old - new < 0", true, false, false},
		{"old - new - 1 > old - new", false, false, false},
	}
	for _, tt := range tests {
		c, err := ParseCondition(tt.cond)
		if err != nil {
			t.Errorf("%s: %v", tt.cond, err)
			continue
		}
		js, err := c.Judge(r)
		if err != nil || len(js) != 1 {
			t.Errorf("%s: %v, %v", tt.cond, js, err)
			continue
		}
		if j := js[0]; j.Holds != tt.holds || j.Maybe != tt.maybe || j.Missing != tt.missing {
			t.Errorf("%s: %+v", tt.cond, j)
		}
		if s := js[0].Sentence(c); !strings.Contains(s, tt.cond) {
			t.Errorf("%s: %s", tt.cond, s)
		}
	}
}

func TestConditionsOverASwitchAreJudgedForEachOtherChoice(t *testing.T) {
	r := fixture([]string{"old / n", "old / u", "new / n", "new / u"}, []string{"r", "s"}, [][]string{{"1", "1", "2", "1"}, {"1", "1", "F", "3"}})
	for i, sw := range []string{"n", "u", "n", "u"} {
		r.Envs[i].Switches = map[string]string{"bin": []string{"old", "new"}[i/2], "aio": sw}
	}
	c, err := ParseCondition("new > old")
	if err != nil {
		t.Fatal(err)
	}
	js, err := c.Judge(r)
	if err != nil || len(js) != 4 {
		t.Fatalf("%v %v", js, err)
	}
	for i, want := range []Judgement{{Holds: true, Where: "aio=n"}, {Where: "aio=u"}, {Missing: true}, {Holds: true}} {
		if js[i].Holds != want.Holds || js[i].Missing != want.Missing || want.Where != "" && js[i].Where != want.Where {
			t.Errorf("%d: %+v", i, js[i])
		}
	}
}

func TestConditionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, s := range []string{"", "new", "new >", "> old", "new > old > x", "1 > 2", "new = old", "(new > old", "(new + 1 > old", "new > 'old", "new > old $", "new > * 2", "new old > 1"} {
		if _, err := ParseCondition(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	c, err := ParseCondition("newer > old")
	if err != nil {
		t.Fatal(err)
	}
	if tpl := parse(t, "{old|new}"); c.Check(tpl) == nil {
		t.Error("an unknown name passes the check")
	}
	if tpl := parse(t, "{old|newer} {1|2}"); c.Check(tpl) != nil {
		t.Error(c.Check(tpl))
	}
	if _, err := c.Judge(fixture([]string{"old", "new"}, []string{"r"}, [][]string{{"1", "1"}})); err == nil || !strings.Contains(err.Error(), `"new"`) {
		t.Errorf("an unknown name: %v", err)
	}
}
