// Asserts that a statement throws lockstep::Error with a message that holds `part`.
#pragma once

#include <gmock/gmock.h>

#include "lockstep/base/error.h"

#define EXPECT_ERROR(statement, part) \
  EXPECT_THAT([&] { statement; }, ::testing::ThrowsMessage<::lockstep::Error>(::testing::HasSubstr(part)))
