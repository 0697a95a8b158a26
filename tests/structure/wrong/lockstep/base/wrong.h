// An include that points upward, for the check to find.
#include <nlohmann/json.hpp>
#include "lockstep/engine/task.h"
struct Open;
