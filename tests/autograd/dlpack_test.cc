#include "lockstep/autograd/dlpack.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/autograd/dlpack_abi.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

// Another library's tensor of two rows, which counts the calls of its deleter.
struct Theirs {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> shape = {2, 3}, strides = {3, 1};
  int deleted = 0;

  template <typename Managed>
  Managed managed() {
    Managed m{};
    m.dl_tensor = {.data = values.data(),
                   .device = {.device_type = kDLCPU, .device_id = 0},
                   .ndim = static_cast<std::int32_t>(shape.size()),
                   .dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
                   .shape = shape.data(),
                   .strides = strides.data(),
                   .byte_offset = 0};
    m.manager_ctx = this;
    m.deleter = [](Managed* self) { ++static_cast<Theirs*>(self->manager_ctx)->deleted; };
    if constexpr (requires { m.version; }) m.version = {.major = 1, .minor = 0};
    return m;
  }
};

template <typename Managed>
class DlpackForms : public ::testing::Test {
 protected:
  static Managed* to(const Tensor& x) {
    if constexpr (std::is_same_v<Managed, DLManagedTensor>) {
      return to_dlpack(x);
    } else {
      return to_dlpack_versioned(x);
    }
  }
};
using Forms = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(DlpackForms, Forms);

TYPED_TEST(DlpackForms, SharesTheMemoryOfOthers) {
  Theirs theirs;
  auto m = theirs.managed<TypeParam>();
  {
    const Tensor x = from_dlpack(&m);
    EXPECT_EQ(x.shape(), (Shape{2, 3}));
    EXPECT_EQ(static_cast<const void*>(x->view().data), theirs.values.data());
    theirs.values[5] = 60;
    EXPECT_EQ((x * 2).to_vector<float>(), (std::vector<float>{2, 4, 6, 8, 10, 120}));
    const Tensor row = x[1];
    EXPECT_EQ(theirs.deleted, 0);
  }
  EXPECT_EQ(theirs.deleted, 1);
  // Tasks of a device keep the memory, too.
  Runtime runtime;
  {
    Tensor y;
    {
      const Tensor x = from_dlpack(&m);
      y = x + zeros({2, 3}, {.device = runtime.devices()[0]});
    }
    EXPECT_EQ(y.to_vector<float>()[5], 60);
  }
  runtime.synchronize();
  EXPECT_EQ(theirs.deleted, 2);
}

TYPED_TEST(DlpackForms, SharesItsMemoryWithOthers) {
  Runtime runtime;
  for (const Device device : {Device(), runtime.devices()[0]}) {
    const Tensor x = (Tensor::from<float>({1, 2, 3, 4}, {2, 2}) * 2).to(device);
    TypeParam* const m = this->to(x);
    const DLTensor& t = m->dl_tensor;
    EXPECT_EQ(t.device.device_type, kDLCPU);
    EXPECT_EQ(t.ndim, 2);
    EXPECT_EQ(t.strides[0], 2);
    EXPECT_EQ(t.dtype.bits, 32);
    static_cast<float*>(t.data)[3] = 9;
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 4, 6, 9}));
    EXPECT_EQ(from_dlpack(m).template to_vector<float>(), (std::vector<float>{2, 4, 6, 9}));  // gives it back
  }
}

TYPED_TEST(DlpackForms, RefusesWhatItCannotShare) {
  Theirs theirs;
  auto m = theirs.managed<TypeParam>();
  const auto refused = [&](auto change, const char* why) {
    auto other = m;
    change(other.dl_tensor);
    EXPECT_ERROR(from_dlpack(&other), why);
  };
  std::vector<std::int64_t> transposed = {1, 2}, negative = {-1, 3};
  refused([&](DLTensor& t) { t.strides = transposed.data(); }, "strides [1, 2] of shape [2, 3], expected row-major");
  refused([&](DLTensor& t) { t.shape = negative.data(); }, "an extent is -1");
  refused([](DLTensor& t) { t.dtype.bits = 8; }, "type code 2 with 8 bits and 1 lanes, expected f32");
  refused([](DLTensor& t) { t.dtype.lanes = 4; }, "with 32 bits and 4 lanes");
  refused([](DLTensor& t) { t.device.device_type = 10; }, "device type 10, expected kDLCPU");
  refused([](DLTensor& t) { t.byte_offset = 2; }, "is not a multiple of the size of f32");
  refused([](DLTensor& t) { t.data = nullptr; }, "no address, expected 24 bytes");
  refused([](DLTensor& t) { t.ndim = 99; }, "99 axes");
  EXPECT_EQ(theirs.deleted, 0);
  EXPECT_ERROR(from_dlpack(static_cast<TypeParam*>(nullptr)), "no tensor");

  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1});
  EXPECT_ERROR(this->to(Tensor()), "the tensor is undefined");
  Tensor x = zeros({4, 2}, {.device = runtime.devices()[0]});
  x.set_requires_grad(true);
  EXPECT_ERROR(this->to(x), "detach() it");
  const std::vector<Slot> slots = {{0, runtime.devices()[0]}, {1, runtime.devices()[1]}};
  const Tensor cut = scatter(zeros({4, 2}), std::make_shared<Placement>(std::vector<std::int64_t>{2, 2}, slots));
  EXPECT_ERROR(this->to(cut), "gather() it");
}

TEST(Dlpack, ChannelsLastKeepsItsOrder) {
  Runtime runtime;
  Theirs theirs{.shape = {1, 3, 1, 2}, .strides = {6, 1, 6, 3}};
  auto m = theirs.managed<DLManagedTensor>();
  const Tensor x = from_dlpack(&m);
  EXPECT_EQ(x.layout(), Layout::channels_last);
  EXPECT_EQ((x.to(runtime.devices()[0]) + 0).to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  DLManagedTensor* const back = to_dlpack(x);
  EXPECT_EQ(back->dl_tensor.strides[1], 1);
  back->deleter(back);
}

TEST(Dlpack, ReadOnlyMemoryIsSaidToBeSo) {
  Theirs theirs;
  auto m = theirs.managed<DLManagedTensorVersioned>();
  m.flags = kDLFlagReadOnly;
  Tensor x = from_dlpack(&m);
  EXPECT_ERROR(x.add_(1), "the memory must not be written");
  EXPECT_ERROR(to_dlpack(x), "use to_dlpack_versioned(), or copy it");
  DLManagedTensorVersioned* const back = to_dlpack_versioned(x);
  EXPECT_EQ(back->flags, kDLFlagReadOnly);
  back->deleter(back);
  m.version.major = 2;
  EXPECT_ERROR(from_dlpack(&m), "version 2.0, expected 1.x");
}

}  // namespace
}  // namespace lockstep
