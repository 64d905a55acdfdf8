#ifndef SLUICE_ATTACH_EARLY_H
#define SLUICE_ATTACH_EARLY_H

// The descriptor by which this process tells its parent to end; -1 where nobody waits.
int early_parent(void);

#endif
