#pragma once

namespace lockstep {
int hidden();
}
