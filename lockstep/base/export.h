// A shared library hides its symbols, except those of the headers that are installed: they open their namespace with this.
#pragma once

#define LOCKSTEP_API [[gnu::visibility("default")]]
