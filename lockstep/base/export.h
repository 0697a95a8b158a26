// A shared library hides its symbols, except those of the public headers, which open their namespace with this.
#pragma once

#define LOCKSTEP_API [[gnu::visibility("default")]]
