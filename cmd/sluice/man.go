package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage is the manual page of a command, in the language of man(7), made from what its help
// shows.
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	p := &page{}
	p.line(`.\" Made by: sluice man. Do not edit.`)
	p.line(`.TH %s 1 "" %s "sluice manual"`, quoted(strings.ToUpper(manName(cmd))),
		quoted("sluice "+version))
	p.line(`.SH NAME`)
	p.line(`%s \- %s`, escaped(manName(cmd)), escaped(lowerFirst(cmd.Short)))
	p.line(`.SH SYNOPSIS`)
	p.line(`.nf`)
	p.line(`\fB%s\fR%s`, escaped(cmd.CommandPath()), escaped(strings.TrimPrefix(cmd.UseLine(),
		cmd.CommandPath())))
	p.line(`.fi`)
	p.line(`.SH DESCRIPTION`)
	p.text(longText(cmd))
	p.children(cmd)
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.line(`.SH EXAMPLES`)
		p.verbatim(strings.Split(cmd.Example, "\n"))
	}
	p.environment(cmd)
	p.line(`.SH EXIT STATUS`)
	p.line(`0 if all went well, 1 if anything did not, 130 if a copy was interrupted.`)
	p.line(`What went wrong is told on standard error, with what to do next.`)
	p.seeAlso(cmd)
	return p.b.String()
}

// manName is the name of a command's page: sluice-volume-create.
func manName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// longText is what a command says of itself.
func longText(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// manCommands are all commands that have pages, from the top down.
func manCommands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, manCommands(c)...)
		}
	}
	return all
}

type page struct{ b strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// text writes paragraphs. Lines that are indented, and stand in tables mostly, stay as they are.
func (p *page) text(text string) {
	for _, paragraph := range strings.Split(text, "\n\n") {
		p.line(`.PP`)
		var kept []string
		for _, line := range strings.Split(paragraph, "\n") {
			if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
				kept = append(kept, line)
				continue
			}
			p.verbatim(kept)
			kept = nil
			if line != "" {
				p.line("%s", protected(line))
			}
		}
		p.verbatim(kept)
	}
}

// verbatim writes lines as they are.
func (p *page) verbatim(lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line(`.PP`)
	p.line(`.nf`)
	for _, line := range lines {
		p.line("%s", protected(strings.TrimPrefix(line, "  ")))
	}
	p.line(`.fi`)
}

func (p *page) children(cmd *cobra.Command) {
	begun := false
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		if !begun {
			p.line(`.SH COMMANDS`)
			begun = true
		}
		p.line(`.TP`)
		p.line(`\fB%s\fR(1)`, escaped(manName(c)))
		p.line("%s", protected(c.Short))
	}
}

func (p *page) flags(title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	p.line(`.SH %s`, title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		p.line(`.TP`)
		name := `\fB` + escaped("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + escaped("-"+f.Shorthand) + `\fR, ` + name
		}
		switch {
		case value == "":
		case f.NoOptDefVal != "":
			name += `[=\fI` + escaped(value) + `\fR]`
		default:
			name += ` \fI` + escaped(value) + `\fR`
		}
		p.line("%s", name)
		if d := f.DefValue; d != "" && d != "false" && d != "true" && d != "0" && d != "[]" &&
			d != "0s" && !strings.Contains(usage, "default") {
			usage += " (default " + d + ")"
		}
		p.line("%s", protected(usage))
	})
}

func (p *page) environment(cmd *cobra.Command) {
	if cmd.Flags().Lookup("url") == nil {
		return
	}
	p.line(`.SH ENVIRONMENT`)
	for _, v := range [][2]string{
		{"SLUICE_URL", "Where the cluster is, unless --url or the path says so."},
		{"SLUICE_SECRET_FILE", "The file with the cluster's secret, unless --secret says so."},
		{"SLUICE_CREDENTIAL", "The file that sluice join has made, unless --credential says so."},
	} {
		p.line(`.TP`)
		p.line(`\fB%s\fR`, escaped(v[0]))
		p.line("%s", protected(v[1]))
	}
}

func (p *page) seeAlso(cmd *cobra.Command) {
	var names []string
	if cmd.HasParent() {
		names = append(names, manName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, manName(c))
		}
	}
	if len(names) == 0 {
		return
	}
	p.line(`.SH SEE ALSO`)
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		p.line(`.BR %s (1)%s`, escaped(name), end)
	}
}

// escaped is text that may hold what roff takes for its own.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", "\\(ga", `~`, `\(ti`,
		`^`, `\(ha`).Replace(text)
}

// protected is escaped for a whole line, which must not look like a request.
func protected(line string) string {
	line = escaped(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}

func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"`
}

// lowerFirst begins a text with a small letter, unless its first word is a name.
func lowerFirst(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if len(first) < 2 || first[1:] != strings.ToLower(first[1:]) {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
