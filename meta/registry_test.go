package meta

import (
	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/identity"
)

func drawRights(t *rapid.T) identity.Rights {
	return identity.Rights{Path: "/" + rapid.StringN(0, 20, 200).Draw(t, "path"), ReadOnly: true,
		Squash: identity.Squash(rapid.Uint8().Draw(t, "squash")), Volumes: []string{"v", "w*"}}
}

func drawToken(t *rapid.T) Token {
	return Token{ID: rapid.Uint64().Draw(t, "id"), Hash: identity.Hash{1, 31: 2},
		Kind: identity.Client, Name: "ann", Roles: 3, Rights: drawRights(t), Uses: 4, Used: 5,
		Created: 6, Expires: rapid.Int64().Draw(t, "expires"), Note: "by root"}
}

func drawMember(t *rapid.T) Member {
	return Member{Kind: identity.Host, Name: "h1", Roles: identity.RolesAll, Rights: drawRights(t),
		Token: 7, Joined: 8, Renewed: 9,
		Certificates: []Certificate{{identity.Serial{1, 15: 2}, 10}, {NotAfter: 11}}}
}

func drawRegistryArgs(t *rapid.T) *RegistryArgs {
	return &RegistryArgs{Token: drawToken(t), Member: drawMember(t), Kind: identity.Client,
		Use: TokenUse{ID: 1, Hash: identity.Hash{2}, Name: "bob", Key: identity.Hash{3},
			Certificate: Certificate{identity.Serial{4}, 5}},
		Serial: identity.Serial{6}, Certificate: Certificate{identity.Serial{7}, 8},
		Key: identity.SecretKey, Generation: Generation{9, identity.Hash{10}, 11, true},
		Server: 12, Have: 13}
}

func drawRegistryResult(t *rapid.T) *RegistryResult {
	return &RegistryResult{Token: drawToken(t), Tokens: []Token{drawToken(t), {}},
		Member: drawMember(t), Members: []Member{{}, drawMember(t)},
		Denied: []Denied{{Certificate{identity.Serial{1}, 2}, identity.Client, "ann", 3}, {}},
		Registry: Registry{Authority: Generation{1, identity.Hash{2}, 3, true},
			Secret: Generation{4, identity.Hash{5}, 6, false}, Denials: 7, SecretMin: 8, Signs: 9},
		Servers: []uint32{4, 5}, Ring: capability.Ring{{Gen: 3, Key: capability.Key{1}}, {Gen: 2}}}
}
