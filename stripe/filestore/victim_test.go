package filestore

func runVictim() {}
