// This file is empty. It lets object_unsafe.go declare a function that the runtime defines.
