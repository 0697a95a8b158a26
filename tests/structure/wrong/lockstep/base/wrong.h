// An include that points upwards, for the check to find.
#include <nlohmann/json.hpp>
#include "lockstep/engine/task.h"
struct Open;
