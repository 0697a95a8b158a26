// Devices by name, and the Runtime that the package makes at its first use.
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "interruptible.h"

namespace lockstep::python {
namespace {

// lockstep.device: a name, which is looked up among the devices when it is used.
struct DeviceName {
  std::string type = "cpu";
  std::optional<int> index;
  bool operator==(const DeviceName&) const = default;
  std::string str() const { return index ? fmt::format("{}:{}", type, *index) : type; }
};

DeviceName parse_device(std::string_view text) {
  const auto colon = text.find(':');
  DeviceName name{.type = std::string(text.substr(0, colon)), .index = {}};
  check(name.type == "cpu" || name.type == "cuda", "device: '{}', expected 'cpu', 'cpu:1', 'cuda', 'cuda:1'", text);
  if (colon == std::string_view::npos) return name;
  int index = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, index);
  check(error == std::errc{} && stop == end && index >= 0, "device: '{}', expected a number after the colon", text);
  name.index = index;
  return name;
}

Device find_device(const DeviceName& wanted) {
  const DeviceKind kind = wanted.type == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
  const std::vector<Device> all = devices();
  for (const Device device : all)
    if (device.kind() == kind && device.index() == wanted.index.value_or(device.index())) return device;
  std::string names;
  for (const Device device : all) names += (names.empty() ? "" : ", ") + device.str();
  fail("device: there is no '{}', expected one of: {}", wanted.str(), names);
}

// Returns device i of the program. A rank of a job uses the index of its own device on this host.
Device numbered_device(long number) {
  const std::vector<Device> all = devices();
  const auto job = find_job(all);
  if (job && !job->alone()) {
    const auto launched = read_launched_rank();
    if (number == (launched ? launched->local_rank.value_or(job->rank()) : job->rank())) return all[0];
  }
  check(number >= 0 && number < std::ssize(all), "device: number {}, expected one of the program's {} devices{}",
        number, all.size(), job && !job->alone() ? ", or this rank's number on its host" : "");
  return all[static_cast<std::size_t>(number)];
}

}  // namespace

bool read_device(py::handle source, Device& device) {
  if (py::isinstance<py::str>(source)) {
    device = find_device(parse_device(source.cast<std::string>()));
    return true;
  }
  if (PyLong_Check(source.ptr()) && !PyBool_Check(source.ptr())) {
    device = numbered_device(source.cast<long>());
    return true;
  }
  if (!py::isinstance<DeviceName>(source)) return false;
  device = find_device(source.cast<DeviceName>());
  return true;
}

bool read_place(py::handle source, Place& place) {
  if (!read_device(source, place.device)) return false;
  place.or_host = (py::isinstance<py::str>(source) && source.cast<std::string>() == "cpu") ||
                  (py::isinstance<DeviceName>(source) && source.cast<DeviceName>() == DeviceName{});
  return true;
}

py::object device_object(Device device) {
  if (device.is_host()) return py::cast(DeviceName{});
  return py::cast(DeviceName{.type = device.kind() == DeviceKind::cpu ? "cpu" : "cuda", .index = device.index()});
}

void add_devices(py::module_& m) {
  py::class_<DeviceName> device(m, "device", "The name of a device: \"cpu\", \"cpu:1\", \"cuda\", \"cuda:1\".");
  device.def(py::init([](const std::string& name) { return parse_device(name); }), "name"_a);
  device.def(py::init([](const DeviceName& name) { return name; }), "device"_a);
  device.def(
      py::init([](const std::string& type, int index) { return parse_device(fmt::format("{}:{}", type, index)); }),
      "type"_a, "index"_a);
  device.def_readonly("type", &DeviceName::type);
  device.def_readonly("index", &DeviceName::index);
  device.def(
      "__eq__", [](const DeviceName& a, const DeviceName& b) { return a == b; }, py::is_operator());
  device.def("__hash__", [](const DeviceName& name) { return py::hash(py::str(name.str())); });
  device.def("__str__", &DeviceName::str);
  device.def("__repr__", [](const DeviceName& d) {
    return d.index ? fmt::format("device(type='{}', index={})", d.type, *d.index)
                   : fmt::format("device(type='{}')", d.type);
  });
  m.def(
      "devices", [] { return devices(); }, "All devices of the program.");
  m.def(
      "set_devices", [](int count) { devices(count); }, "devices"_a, released(),
      "Makes so many devices, or those of a list, \"cpu:0,cpu:1\". Call it before anything needs a device.");
  m.def(
      "set_devices", [](const std::string& list) { devices(WantedDevices(list)); }, "devices"_a, released());
  m.def(
      "synchronize", [] { interruptible([] { synchronize(); }); },
      "Waits for all work. Raises the first failure that no wait has raised.");
  m.def("manual_seed", &manual_seed, "seed"_a,
        "Sets the seed of initial weights, shuffling, dropout, rand, and randn.");
}

}  // namespace lockstep::python
