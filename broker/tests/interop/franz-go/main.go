// The suite of franz-go.
// Holds: the groups of cases and their order. Never touches: the protocol itself.
package main

import (
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
)

const name = "franz-go"

// Suite is what every group of cases needs.
type Suite struct {
	cases    Cases
	admin    *kadm.Client
	fixtures []Fixture
}

func main() {
	fixtures, err := loadFixtures()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client, err := newClient()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	suite := &Suite{admin: kadm.NewClient(client), fixtures: fixtures}
	suite.recordCases()
	suite.timeCases()
	suite.adminCases()
	suite.errorCases()
	client.Close()
	if suite.cases.failed {
		os.Exit(1)
	}
}
