package kvtest

func modelCases() []Case { return nil }
