package sample

func crash() {
	if planted("crash") {
		panic("planted")
	}
}
