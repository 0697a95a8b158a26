// A TreeReducer in the memory of GPUs. NCCL moves the pieces; ranks agree, wait for each other and hear of failures on the
// mesh, as for any other collective.
#pragma once

#include <memory>

#include "lockstep/comm/device_links.h"
#include "lockstep/comm/summing_device.h"
#include "lockstep/comm/tree_reducer.h"

namespace lockstep {

// A collective.
std::shared_ptr<DeviceLinks> link_gpus(Mesh& mesh, int lane, Stream& stream, const TimeLimit& limit);

// `timeout`: of what the GPUs do, once all ranks have come.
std::unique_ptr<MeshTreeReducer> make_device_reducer(Mesh& mesh, int lane, TreeLayout layout,
                                                     std::shared_ptr<SummingDevice> device,
                                                     std::shared_ptr<DeviceLinks> links,
                                                     std::chrono::milliseconds timeout);

}  // namespace lockstep
