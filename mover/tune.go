package mover
