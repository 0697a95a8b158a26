// An include that points upward, for the check to find.
#include <nlohmann/json.hpp>
#include "lockstep/engine/task.h"
inline bool f() { return nlohmann::json::parse("").empty(); }
struct Open;
