// Marks the namespace of a public header: a shared library exports only the symbols in such namespaces.
//
//   namespace LOCKSTEP_API lockstep {
#pragma once

#define LOCKSTEP_API [[gnu::visibility("default")]]
