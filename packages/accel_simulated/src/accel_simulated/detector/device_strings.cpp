// Sees each device string that torch reads ("cuda:0"), by standing before the one function that reads them.
//
// c10::Device's constructor of a string is exported by libc10.so and called through the dynamic linker. Loaded
// before torch, with RTLD_GLOBAL, this library has the first symbol of that name. It needs no header of torch's:
// the object is never looked into.

#include <dlfcn.h>

#include <exception>
#include <string>

namespace {

// The text, and the error that reading it gave, or null.
using Tell = void (*)(const char*, const char*);

Tell tell = nullptr;
std::string foreign;  // ",cuda,xpu,": the types to tell of

bool is_foreign(const std::string& text) {
  return foreign.find("," + text.substr(0, text.find(':')) + ",") != std::string::npos;
}

}  // namespace

namespace c10 {

struct Device {
  explicit Device(const std::string& text);
};

Device::Device(const std::string& text) {
  using Constructor = void (*)(Device*, const std::string&);
  static const Constructor original = reinterpret_cast<Constructor>(
      dlsym(dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_"
                                                          "traitsIcESaIcEEE"));
  if (tell == nullptr || !is_foreign(text)) {
    original(this, text);
    return;
  }
  try {
    original(this, text);
  } catch (const std::exception& error) {
    tell(text.c_str(), error.what());
    throw;
  }
  tell(text.c_str(), nullptr);
}

}  // namespace c10

// Tell of these types, such as ",cuda,xpu,"; with null of none.
extern "C" void watch(Tell to, const char* types) {
  tell = nullptr;
  foreign = types;
  tell = to;
}
