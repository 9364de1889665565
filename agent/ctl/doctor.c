/* doctor.c - `nixletctl doctor`: runs the looks in order and prints what they found. */
#include "ctl/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "ctl/args.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

static const char *const level_words[] = {"ok", "warn", "no"};

static void add(struct doctor *doctor, enum doctor_level level, const char *name, const char *todo,
                int needed, const char *fmt, va_list args)
{
    struct doctor_check *check;

    NXL_ASSERT(doctor->count < DOCTOR_CHECKS_MAX);
    check = &doctor->checks[doctor->count++];
    check->name = name;
    check->level = level;
    check->needed = needed;
    check->todo = level == DOCTOR_OK ? NULL : todo;
    (void)vsnprintf(check->found, sizeof(check->found), fmt, args); /* a cut sentence still helps */
    ctl_harmless(check->found);
    for (char *at = check->found; *at != '\0'; at++) /* names of files may be in any encoding */
        *at = (unsigned char)*at > 0x7e ? '?' : *at;
    doctor->missing |= needed && level == DOCTOR_NO;
}

void doctor_say(struct doctor *doctor, enum doctor_level level, const char *name, const char *todo,
                const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, level, name, todo, 0, fmt, args);
    va_end(args);
}

void doctor_need(struct doctor *doctor, enum doctor_level level, const char *name, const char *todo,
                 const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, level, name, todo, 1, fmt, args);
    va_end(args);
}

static int json_print(const struct doctor *doctor)
{
    json_t *rows = json_array();

    for (unsigned i = 0; i < doctor->count; i++) {
        const struct doctor_check *check = &doctor->checks[i];
        json_t *row =
            json_pack("{s:s, s:s, s:b, s:s}", "name", check->name, "level",
                      level_words[check->level], "needed", check->needed, "found", check->found);

        if (check->todo != NULL)
            (void)json_object_set_new(row, "todo", json_string(check->todo));
        (void)json_array_append_new(rows, row); /* ctl_json() stops on a missing object */
    }
    return ctl_json(doctor->ctl, json_pack("{s:b, s:o}", "ok", !doctor->missing, "checks", rows));
}

static int text_print(const struct doctor *doctor)
{
    unsigned counts[3] = {0};

    for (unsigned i = 0; i < doctor->count; i++) {
        const struct doctor_check *check = &doctor->checks[i];

        counts[check->level]++;
        printf("%-4s  %-16s %s%s\n", level_words[check->level], check->name, check->found,
               check->level == DOCTOR_NO && check->needed ? " (needed)" : "");
        if (check->todo != NULL)
            printf("%-4s  %-16s -> %s\n", "", "", check->todo);
    }
    printf("\n%u ok, %u warn, %u no: %s\n", counts[0], counts[1], counts[2],
           doctor->missing ? "an agent cannot work here" : "an agent can work here");
    return ctl_flush(doctor->ctl);
}

int ctl_doctor_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    struct doctor *doctor;
    struct ctl_words words;
    int code = ctl_args_read(ctl, self, NULL, argc, argv, 0, 0, &words);

    if (code >= 0)
        return code;
    doctor = nxl_new0(sizeof(*doctor));
    doctor->ctl = ctl;
    doctor_kernel(doctor); /* forks: before UCX is loaded */
    doctor_devices(doctor);
    doctor_limits(doctor);
    doctor_network(doctor);
    doctor_agent(doctor);
    doctor_ucx(doctor);
    code = ctl->json ? json_print(doctor) : text_print(doctor);
    if (doctor->missing)
        code = CTL_FAILED;
    free(doctor);
    return code;
}
