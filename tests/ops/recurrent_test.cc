// Steps of recurrent cells check that gates and states fit before they push a task.
#include "lockstep/ops/recurrent.h"

#include <gtest/gtest.h>

#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

TEST(RecurrentCells, NameGatesThatDoNotFitTheState) {
  Runtime runtime;
  const auto on = [&](const Shape& shape, DType dtype = DType::f32) {
    return ops::to_device(Array::host(shape, dtype), runtime.devices()[0]);
  };
  const Array state = on({5, 6}), gates = on({5, 7});
  EXPECT_ERROR(
      ops::lstm_cell(gates, gates, state),
      "lstm: the gates are [5, 7] f32 on cpu:0, the state is [5, 6] f32 on cpu:0, expected [N, 4 H] and [N, H] "
      "of one type");
  EXPECT_ERROR(ops::gru_cell(gates, gates, state), "expected [N, 3 H] and [N, H] of one type");
  EXPECT_ERROR(ops::gru_cell(on({5, 18}, DType::f64), on({5, 18}, DType::f64), state),
               "gru: the gates are [5, 18] f64");
  EXPECT_ERROR(ops::lstm_cell(on({5, 24}), gates, state), "lstm: ");
  EXPECT_ERROR(ops::gru_cell(on({90}), on({90}), state), "gru: gates is [90]");
  EXPECT_ERROR(ops::lstm_cell(on({5, 24}), on({5, 24}), on({6})), "lstm: state is [6]");
}

}  // namespace
}  // namespace lockstep::testing
