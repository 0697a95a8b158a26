// Internal: a TreeReducer in the memory of GPUs. NCCL moves the pieces. The transport does the rest, as for any other
// collective: agreement between ranks, waiting, and failures.
#pragma once

#include <memory>

#include "lockstep/comm/device_links.h"
#include "lockstep/comm/summing_device.h"
#include "lockstep/comm/tree_reducer.h"

namespace lockstep {

// A collective. Connects the ranks' GPUs.
std::shared_ptr<DeviceLinks> link_gpus(Transport& transport, int channel, Stream& stream, const TimeLimit& limit);

// `timeout` limits the GPUs' work after all ranks have joined.
std::unique_ptr<TreeReducer> make_device_reducer(Transport& transport, int channel, IndexedLayout layout,
                                                 CollectiveRunner run, std::shared_ptr<SummingDevice> device,
                                                 std::shared_ptr<DeviceLinks> links, std::chrono::milliseconds timeout);

}  // namespace lockstep
