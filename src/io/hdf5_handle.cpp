#include "io/hdf5_handle.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/hdf5_version.h"
#include "io/raw_file.h"

namespace loratrain {

namespace {

std::recursive_mutex& library_mutex() {
    static std::recursive_mutex mutex;
    return mutex;
}

extern "C" herr_t keep_innermost_message(unsigned /*depth*/, const H5E_error2_t* error,
                                         void* text) {
    if (error->desc != nullptr && *error->desc != '\0') {
        *static_cast<std::string*>(text) = error->desc;
    }
    return 0;
}

extern "C" herr_t collect_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/,
                               void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

/// An entry of a group that leads out of the file, or to what only a plug-in knows.
struct LeadingOut {
    std::string name;
    std::string target;
};

extern "C" herr_t collect_leading_out(hid_t group, const char* name, const H5L_info_t* info,
                                      void* found) {
    if (info->type == H5L_TYPE_HARD || info->type == H5L_TYPE_SOFT) return 0;
    std::string target = "what is not in this file";
    std::vector<char> value(info->u.val_size + 1);
    const char* file = nullptr;
    const char* object = nullptr;
    const bool known =
        info->type == H5L_TYPE_EXTERNAL &&
        H5Lget_val(group, name, value.data(), value.size(), H5P_DEFAULT) >= 0 &&
        H5Lunpack_elink_val(value.data(), info->u.val_size, nullptr, &file, &object) >= 0;
    if (known) target = cat(object, " of ", file);
    static_cast<std::vector<LeadingOut>*>(found)->push_back({name, target});
    return 0;
}

/// What such a link leads to may change without this file, and would go into runs unseen.
void refuse_links_that_lead_out(hid_t file, const std::string& path) {
    std::vector<LeadingOut> found;
    H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, collect_leading_out, &found);
    CappedProblems problems(path);
    for (const LeadingOut& link : found) {
        problems.add(cat(path, ":", link.name), "is an external link to " + link.target,
                     "copy the data into the file, or make the file again");
    }
    problems.throw_if_any();
}

Hdf5Handle read_access() {
    Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    // Parallel file systems without flock must not keep a frozen file from being read.
    H5Pset_file_locking(access.get(), true, true);
    return access;
}

struct FloatFields {
    std::size_t sign = 0;
    std::size_t exponent_at = 0;
    std::size_t exponent_bits = 0;
    std::size_t mantissa_at = 0;
    std::size_t mantissa_bits = 0;
    bool operator==(const FloatFields&) const = default;
};

bool has_float_layout(hid_t type, std::size_t bytes, const FloatFields& wanted) {
    if (H5Tget_class(type) != H5T_FLOAT || H5Tget_size(type) != bytes) return false;
    FloatFields fields;
    H5Tget_fields(type, &fields.sign, &fields.exponent_at, &fields.exponent_bits,
                  &fields.mantissa_at, &fields.mantissa_bits);
    return fields == wanted && H5Tget_ebias(type) == 127;
}

std::string read_variable_text(hid_t attribute, hid_t type) {
    char* text = nullptr;
    if (H5Aread(attribute, type, static_cast<void*>(&text)) < 0 || text == nullptr) return "";
    std::string copy = text;
    H5free_memory(text);
    return copy;
}

std::string read_fixed_text(hid_t attribute, hid_t type) {
    std::string text(H5Tget_size(type), '\0');
    if (H5Aread(attribute, type, text.data()) < 0) return "";
    text.resize(std::min(text.size(), text.find('\0')));
    return text;
}

}  // namespace

std::string hdf5_version() {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    H5get_libversion(&major, &minor, &release);
    return cat(major, ".", minor, ".", release);
}

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
    // After a failed write (full disk) HDF5's own cleanup at exit would use freed memory; every
    // handle is closed by its owner anyway. Only works before the library's first use.
    static const herr_t without_cleanup = H5dont_atexit();
    static_cast<void>(without_cleanup);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}

Hdf5Handle& Hdf5Handle::operator=(Hdf5Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
}

bool Hdf5Handle::close() {
    if (id_ < 0) return true;
    const Hdf5Lock lock;
    return closer_(std::exchange(id_, -1)) >= 0;
}

std::string hdf5_reason() {
    std::string text = "no reason given";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost_message, &text);
    return text;
}

Hdf5Handle open_hdf5_file(const std::string& path) {
    const InputFile readable(path);
    const Hdf5Lock lock;
    if (H5Fis_hdf5(path.c_str()) <= 0) {
        throw InputError(
            path, "is not an HDF5 file",
            "give a file in HDF5 format; loratrain import-hf makes one of a Hugging Face model");
    }
    const Hdf5Handle access = read_access();
    Hdf5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
    if (!file) {
        throw InputError(path, "cannot be opened as HDF5: " + hdf5_reason(),
                         "the file is probably truncated or still being written");
    }
    refuse_links_that_lead_out(file.get(), path);
    return file;
}

Hdf5Handle create_hdf5_file(const std::string& path) {
    const Hdf5Lock lock;
    const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18);
    const Hdf5Handle root_group(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    H5Pset_obj_track_times(root_group.get(), false);  // the same contents, the same bytes
    return checked(
        {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, root_group.get(), access.get()), H5Fclose}, path,
        "create the file");
}

Hdf5Handle checked(Hdf5Handle handle, const std::string& where, const std::string& action) {
    if (!handle) throw Error(where + ": cannot " + action + ": " + hdf5_reason());
    return handle;
}

void check_status(herr_t status, const std::string& where, const std::string& action) {
    if (status < 0) throw Error(where + ": cannot " + action + ": " + hdf5_reason());
}

std::vector<std::string> root_names(hid_t file) {
    std::vector<std::string> names;
    H5Literate(file, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_name, &names);
    std::sort(names.begin(), names.end());
    return names;
}

Hdf5Handle make_bf16_type() {
    const Hdf5Lock lock;
    Hdf5Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
    const bool made = H5Tset_fields(type.get(), 15, 7, 8, 0, 7) >= 0 &&
                      H5Tset_size(type.get(), 2) >= 0 && H5Tset_ebias(type.get(), 127) >= 0;
    LORATRAIN_CHECK(made && is_bf16_type(type.get()), "bfloat16 as an HDF5 type");
    return type;
}

bool is_bf16_type(hid_t type) {
    return has_float_layout(type, 2, {15, 7, 8, 0, 7});
}

bool is_f32_type(hid_t type) {
    return has_float_layout(type, 4, {31, 23, 8, 0, 23});
}

std::optional<std::string> read_text_attribute(hid_t object, const std::string& name) {
    if (H5Aexists(object, name.c_str()) <= 0) return std::nullopt;
    const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
    const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
    const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
    if (!type || H5Tget_class(type.get()) != H5T_STRING ||
        H5Sget_simple_extent_npoints(space.get()) != 1) {
        return std::nullopt;
    }
    return H5Tis_variable_str(type.get()) > 0 ? read_variable_text(attribute.get(), type.get())
                                              : read_fixed_text(attribute.get(), type.get());
}

void write_text_attribute(hid_t object, const std::string& name, const std::string& value,
                          const std::string& where) {
    const std::string action = "write attribute '" + name + "'";
    const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), value.size() + 1);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const Hdf5Handle attribute = checked(
        {H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
         H5Aclose},
        where, action);
    check_status(H5Awrite(attribute.get(), type.get(), value.c_str()), where, action);
}

std::vector<std::int64_t> dataset_shape(hid_t dataset) {
    const Hdf5Handle space(H5Dget_space(dataset), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<hsize_t> extents(static_cast<std::size_t>(std::max(rank, 0)));
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    return {extents.begin(), extents.end()};
}

}  // namespace loratrain
