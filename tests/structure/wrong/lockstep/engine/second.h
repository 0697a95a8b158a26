// Internal: says what it is not.
#pragma once

struct Open {
  int member;
};
