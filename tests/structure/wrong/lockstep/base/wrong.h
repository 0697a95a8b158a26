// An include that points upwards, for the check to find.
#include "lockstep/engine/task.h"
#include <nlohmann/json.hpp>
