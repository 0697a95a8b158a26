// The version of the library. Minor versions of 0.x may break programs; CHANGELOG.md says how.
#pragma once

#define LOCKSTEP_VERSION_MAJOR 0
#define LOCKSTEP_VERSION_MINOR 1
#define LOCKSTEP_VERSION_PATCH 0
#define LOCKSTEP_VERSION "0.1.0"

// Increases when the bits that a recipe gives change. Equal revisions give equal bits.
#define LOCKSTEP_KERNEL_REVISION 3
