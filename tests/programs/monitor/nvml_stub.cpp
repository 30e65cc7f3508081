// SPDX-License-Identifier: Apache-2.0
// Implements NVML's functions for two GPUs. The first GPU supports everything, the second almost nothing. The
// fields are written at the offsets that NVIDIA documents, not through the struct declarations that the tests
// check. The environment variable NVML_STUB_MODE selects a special case. "dead": initialization fails.
// "none": no GPU exists. "lost": a GPU has no handle. "idle": a GPU is idle and has a throttle reason without
// a name.
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int success = 0, not_supported = 3, no_permission = 4, insufficient_size = 7, no_driver = 9,
              gpu_lost = 15;

int devices[2];
unsigned long long samples = 0;

bool mode(char const* name) {
  char const* const given = std::getenv("NVML_STUB_MODE");
  return given != nullptr && std::strcmp(given, name) == 0;
}
bool first(void* device) { return device == &devices[0]; }

template <class Value>
void put(void* at, std::size_t offset, Value value) {
  std::memcpy(static_cast<char*>(at) + offset, &value, sizeof value);
}
int answer(void* device, unsigned* out, unsigned value) {
  if (!first(device)) return not_supported;
  *out = value;
  return success;
}
int text(char* out, unsigned size, char const* value) {
  if (std::strlen(value) >= size) return insufficient_size;
  std::strcpy(out, value);
  return success;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return mode("dead") ? no_driver : success; }
int nvmlShutdown() { return success; }
char const* nvmlErrorString(int status) {
  return status == no_driver ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* out, unsigned size) { return text(out, size, "580.65.06"); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = mode("none") ? 0 : 2;
  return success;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (mode("lost") && index == 0) return gpu_lost;
  *device = &devices[index];
  return success;
}
int nvmlDeviceGetName(void* device, char* out, unsigned size) {
  return text(out, size, first(device) ? "NVIDIA H200" : "NVIDIA Old");
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  return first(device) ? text(out, size, "GPU-01234567-89ab-cdef-0123-456789abcdef") : no_permission;
}
int nvmlDeviceGetPciInfo_v3(void* device, void* info) {
  std::memset(info, 0, 68);
  std::strcpy(static_cast<char*>(info), first(device) ? "0000:1B:00.0" : "0000:9C:00.0");
  put(info, 16, 0u);
  put(info, 20, first(device) ? 0x1bu : 0x9cu);
  std::strcpy(static_cast<char*>(info) + 36, first(device) ? "00000000:1B:00.0" : "00000000:9C:00.0");
  return success;
}
int nvmlDeviceGetMemoryInfo(void* device, void* memory) {
  if (!first(device)) return not_supported;
  put(memory, 0, 150754820096ull);  // total
  put(memory, 8, 149680029696ull);  // free
  put(memory, 16, 1074790400ull);   // used: 1,025 MiB
  return success;
}
int nvmlDeviceGetUtilizationRates(void* device, void* rates) {
  if (!first(device)) return not_supported;
  put(rates, 0, samples++ % 2 == 0 ? 90u : 100u);
  put(rates, 4, 41u);
  return success;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) { return answer(device, milliwatts, 650250); }
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return answer(device, milliwatts, 600000);
}
int nvmlDeviceGetPowerManagementDefaultLimit(void* device, unsigned* milliwatts) {
  return answer(device, milliwatts, 700000);
}
int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  if (sensor != 0) return not_supported;
  *celsius = first(device) ? 61 : 44;
  return success;
}
int nvmlDeviceGetClockInfo(void* device, unsigned clock, unsigned* mhz) {
  return answer(device, mhz, clock == 1 ? 1755 : clock == 2 ? 3201 : 1);
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned clock, unsigned* mhz) {
  return answer(device, mhz, clock == 1 ? 1980 : clock == 2 ? 3202 : 1);
}
int nvmlDeviceGetEccMode(void* device, unsigned* current, unsigned* pending) {
  *pending = 0;
  return answer(device, current, 1);
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *pending = 1;
  return answer(device, current, 0);
}
int nvmlDeviceGetPersistenceMode(void* device, unsigned* mode) { return answer(device, mode, 1); }

#if defined(TESSERA_OLD_NVML)
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  if (!first(device)) return not_supported;
  *reasons = 0x8;
  return success;
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  if (!first(device)) return not_supported;
  *reasons = mode("idle") ? 0x10000000001 : 0x24;
  return success;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (!first(device)) return not_supported;
  *millijoules = 12345678901234ull + 1500 * samples;
  return success;
}
// Returns 40 processes, more than the first buffer of a caller holds. The memory of the second process is
// unknown.
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* processes) {
  constexpr unsigned all = 40;
  if (!first(device)) return not_supported;
  unsigned const room = *count;
  *count = all;
  if (room < all) return insufficient_size;
  for (unsigned i = 0; i < all; ++i) {
    put(processes, std::size_t{24} * i, 1000u + i);
    put(processes, std::size_t{24} * i + 8, i == 1 ? ~0ull : (i + 1ull) << 20);
    put(processes, std::size_t{24} * i + 16, ~0u);
    put(processes, std::size_t{24} * i + 20, ~0u);
  }
  return success;
}
int nvmlDeviceGetFieldValues(void* device, int count, void* values) {
  if (!first(device)) return not_supported;
  for (int i = 0; i < count; ++i) {
    char* const value = static_cast<char*>(values) + std::size_t{40} * static_cast<std::size_t>(i);
    unsigned field = 0;
    std::memcpy(&field, value, 4);
    bool const known = field == 186 || field == 185;
    put(value, 24, 1);  // value type: unsigned int
    put(value, 28, known ? success : not_supported);
    put(value, 32, field == 186 ? 688700u : 655400u);
  }
  return success;
}
#endif

}  // extern "C"
