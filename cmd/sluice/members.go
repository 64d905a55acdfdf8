package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// memberInfo is a host or a client as ls --json shows it.
type memberInfo struct {
	Name         string           `json:"name"`
	Roles        identity.Roles   `json:"roles,omitempty"`
	Rights       *identity.Rights `json:"rights,omitempty"`
	Token        string           `json:"token,omitempty"` // by which it joined
	Joined       time.Time        `json:"joined"`
	Renewed      time.Time        `json:"renewed"`
	Expires      time.Time        `json:"expires"`      // its latest certificate
	Certificates int              `json:"certificates"` // that have not run out
}

// removedInfo is what rm --json prints.
type removedInfo struct {
	Removed []string `json:"removed"`
}

func memberOf(m *meta.Member) memberInfo {
	i := memberInfo{Name: m.Name, Roles: m.Roles, Joined: time.Unix(0, m.Joined),
		Renewed: time.Unix(0, m.Renewed)}
	if m.Kind == identity.Client {
		i.Rights = &m.Rights
	}
	if m.Token != 0 {
		i.Token = tokenID(m.Token)
	}
	now := time.Now()
	for _, c := range m.Certificates {
		end := time.Unix(0, c.NotAfter)
		if end.After(now) {
			i.Certificates++
		}
		if end.After(i.Expires) {
			i.Expires = end
		}
	}
	return i
}

// membersLs lists those of a kind.
func membersLs(kind identity.Kind, long string) *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   fmt.Sprintf("List the %ss that have joined", kind),
		Long:    long,
		Example: fmt.Sprintf("  sluice %s ls\n  sluice %s ls --json", kind, kind),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			infos := []memberInfo{}
			for after := ""; ; {
				page, err := conn.meta.ListMembers(cmd.Context(), processCaller(), kind, after,
					meta.MemberPageMax)
				if err != nil {
					return registryAdvice(err)
				}
				if len(page) == 0 {
					break
				}
				for i := range page {
					infos = append(infos, memberOf(&page[i]))
				}
				after = page[len(page)-1].Name
			}
			if asJSON {
				return printJSON(cmd, infos)
			}
			return printMembers(cmd, infos)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []memberInfo{})
	return cmd
}

func printMembers(cmd *cobra.Command, infos []memberInfo) error {
	t := newTable(cmd)
	fmt.Fprintln(t, "NAME\tMAY\tJOINED\tCERTIFICATE")
	for _, i := range infos {
		may := i.Roles.String()
		if i.Rights != nil {
			may = rightsText(i.Rights)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", i.Name, may, i.Joined.Local().Format(time.DateTime),
			daysLeft(i.Expires, time.Now()))
	}
	return t.Flush()
}

// daysLeft tells how long a certificate lasts.
func daysLeft(end, now time.Time) string {
	if !end.After(now) {
		return "ended " + end.Local().Format(time.DateOnly)
	}
	return plural(int(end.Sub(now).Hours()/24), "day") + " left"
}

// membersRm removes those of a kind.
func membersRm(kind identity.Kind, long string) *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Short:   fmt.Sprintf("Remove %ss: their certificates are refused from now on", kind),
		Long:    long,
		Example: fmt.Sprintf("  sluice %s rm old-%s", kind, kind),
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := identity.CheckName(name); err != nil {
					return hint(err, "See: sluice %s ls", kind)
				}
			}
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			done := "The " + kind.String() + " %s is removed: its certificates are refused everywhere " +
				"within a minute. It can join again by a new token\n"
			return removeEach(cmd, asJSON, done, args, func(i int) error {
				return conn.meta.RemoveMember(cmd.Context(), processCaller(), kind, args[i])
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, removedInfo{})
	return cmd
}

// removeEach removes what arguments name, and says so with the format text. One that fails does not
// keep the others from being done.
func removeEach(cmd *cobra.Command, asJSON bool, text string, args []string,
	remove func(i int) error) error {
	done := removedInfo{Removed: []string{}}
	failed := false
	for i, arg := range args {
		if err := remove(i); err != nil {
			complain(cmd, registryAdvice(err))
			failed = true
			continue
		}
		done.Removed = append(done.Removed, arg)
		if !asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), text, arg)
		}
	}
	if asJSON {
		if err := printJSON(cmd, done); err != nil {
			return err
		}
	}
	if failed {
		return &exitError{code: 1}
	}
	return nil
}
