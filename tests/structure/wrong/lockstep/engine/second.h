#pragma once

struct Open {
  int member;
};
